#!/bin/sh
# dwell itself: `http` is a broker and a client of it of a few lines, `rust` a broker and dwell's Rust client, `library` is the broker
# inside the client's process, and `sqs` and `go` are a broker and a client that golang/ has: that of Amazon SQS, and that of dwell.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
case "$2" in library) built=library ;; *) built=http ;; esac
client="$here/target/$built/release/peer-dwell"
case "$1" in
install)
    # The client depends on the crates that dwell does, in the versions that dwell does.
    cp "$root/Cargo.lock" "$here/Cargo.lock"
    cd "$here"
    [ "$2" = library ] || cargo build --manifest-path "$root/Cargo.toml" --target-dir "$root/target" --release --locked --bin dwell
    case "$2" in
    http | rust) cargo build --release --target-dir target/http ;;
    sqs | go) ../golang/peer.sh install "$2" ;;
    library) cargo build --release --target-dir target/library --features library ;;
    esac
    ;;
about)
    sed -n '/^version = /{s/version = "\(.*\)"/\1/p;q}' "$root/Cargo.toml"
    case "$2" in
    http) echo "dwell serve over Redis, 8 partitions; batches of 100, 8 connections for producers and 8 for consumers, long polls" ;;
    sqs) echo "dwell serve --sqs over Redis, 8 partitions; aws-sdk-go-v2, batches of 10, which is the limit of SQS, 32 producers and 32 consumers, long polls; delays are whole seconds" ;;
    go) echo "dwell serve over Redis, 8 partitions; the Go client: 32 goroutines push through one Producer with 100 pushes each that wait for their answers, and one Worker has 100 handlers" ;;
    rust) echo "dwell serve over Redis, 8 partitions; the Rust client: 32 callers push through one Producer with 100 pushes each that wait for their answers, and one Worker has 100 handlers" ;;
    library) echo "in the client's process over Redis, 8 partitions; batches of 500, 4 producers and 4 consumers" ;;
    esac
    ;;
run)
    if [ "$2" != library ]; then
        [ "$2" != sqs ] || export DWELL_SQS_ENABLED=true DWELL_SQS_PARTITIONS=8
        "$root/target/release/dwell" serve --listen "127.0.0.1:$PORT" --redis "redis://127.0.0.1:$REDIS_PORT" --data-dir "$DATA/dwell" >/dev/null &
        curl -s --retry 100 --retry-delay 0 --retry-connrefused --retry-max-time 10 -o /dev/null "http://127.0.0.1:$PORT/readyz"
    fi
    case "$2" in sqs | go) client="$here/../golang/target/peer" ;; esac
    exec "$client" "$2" "$3"
    ;;
esac
