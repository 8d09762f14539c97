#!/bin/sh
# Peers with a client in Go, from the Go module proxy: `asynq` over Redis, `nats`, a nats-server with JetStream, and `sqs` and
# `go`, which dwell/ starts; `go` is the client of this repository. The scripts in asynq/, nats/ and dwell/ call this one with their names.
set -eu
cd "$(dirname "$0")"
version() {
    go list -m -f '{{.Version}}' "$1" | sed 's/^v//'
}
case "$1" in
install)
    go build -o target/peer .
    [ "$2" != nats ] || go build -o target/nats-server github.com/nats-io/nats-server/v2
    ;;
about)
    case "$2" in
    asynq)
        echo "$(version github.com/hibiken/asynq), $(go env GOVERSION)"
        echo "a library over Redis; 128 producers at a time, each with its own connection, since asynq has no batches; 4 servers with a concurrency of 16 each, since a server takes tasks one by one; a server looks every 100 ms for tasks that have become due (DelayedTaskCheckInterval, 5 s by default) and, while idle, for new ones (TaskCheckInterval); due times are whole seconds, rounded up; producers and servers in one process"
        ;;
    nats)
        echo "$(version github.com/nats-io/nats-server/v2), nats.go $(version github.com/nats-io/nats.go), $(go env GOVERSION)"
        echo "JetStream with message schedules (\`Nats-Schedule: @at\`), each message on a separate subject until it is due; one stream in files with work-queue retention, synced every 2 minutes by default; messages that are already due are published without a schedule; 1,000 asynchronous publishes pending on each of 4 connections, each acked by the server; one pull consumer, read over 4 connections, explicit acks, the last one of up to 1,000 answered"
        ;;
    esac
    ;;
run)
    if [ "$2" = nats ]; then
        "$PWD/target/nats-server" -a 127.0.0.1 -p "$PORT" -js -sd "$DATA" -l "$DATA/log" >&2 &
        server=$!
        # It listens when JetStream has started.
        python3 -c '
import socket, sys, time
for _ in range(500):
    try: socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close(); break
    except OSError: time.sleep(0.02)' "$PORT"
        # For the measure of memory: its process, and its kB before the first message.
        echo "$server $(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$server/status")" >"$DATA/server"
    fi
    exec "$PWD/target/peer" "$2" "$3"
    ;;
esac
