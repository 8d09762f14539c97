#!/bin/sh
# RabbitMQ: a node of its own on loopback. `transient` keeps messages in memory, `persistent` writes them to disk.
set -eu
cd "$(dirname "$0")"
server=/usr/lib/rabbitmq/bin/rabbitmq-server # not the one in PATH, which becomes the user rabbitmq
free_port() {
    python3 -c 'import socket; probe = socket.socket(); probe.bind(("127.0.0.1", 0)); print(probe.getsockname()[1])'
}
case "$1" in
install)
    # Debian starts a node of the machine's after that, unless its policy is not to.
    [ -x "$server" ] || apt-get install -qq --no-install-recommends rabbitmq-server
    cargo build --release --locked --target-dir target
    ;;
about)
    dpkg-query -W -f '${Version}, ' rabbitmq-server | sed 's/-[^,]*//'
    dpkg-query -W -f 'Erlang ${Version}\n' erlang-base | sed 's/Erlang [0-9]*:/Erlang /; s/+.*//'
    case "$2" in
    transient) kept="transient messages in queues that are not durable" ;;
    persistent) kept="persistent messages in durable queues, confirmed when they are on disk" ;;
    esac
    echo "$kept; each message has a time to live in a classic waiting queue, whose dead letters go to the working queue; only the head of a queue expires, so each producer has a separate waiting queue and pushes in due order; messages that are already due go directly to the working queue; publisher confirms, 500 pipelined, 4 connections for producers and 4 for consumers, prefetch 2,000, one ack for up to 500 messages, which RabbitMQ does not answer"
    ;;
run)
    epmd_port=$(free_port)
    # Erlang's name service would outlive the node as a daemon, had the node to start it.
    epmd -address 127.0.0.1 -port "$epmd_port" >&2 &
    # No settings of the machine's; all it writes, the cookie among it, goes to its own directory. Schedulers that have
    # nothing to do sleep, as the client needs the processors as well.
    env HOME="$DATA" ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$epmd_port" \
        RABBITMQ_NODENAME="bench-$PORT@localhost" \
        RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$PORT" RABBITMQ_DIST_PORT="$(free_port)" \
        RABBITMQ_MNESIA_BASE="$DATA" RABBITMQ_LOG_BASE="$DATA" RABBITMQ_PID_FILE="$DATA/pid" \
        RABBITMQ_CONFIG_FILE="$DATA/none" RABBITMQ_ADVANCED_CONFIG_FILE="$DATA/none" \
        RABBITMQ_CONF_ENV_FILE="$DATA/none" RABBITMQ_ENABLED_PLUGINS_FILE="$DATA/plugins" \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none" \
        "$server" >"$DATA/log" 2>&1 &
    # It listens when it has started.
    python3 -c '
import socket, sys, time
for _ in range(600):
    try: socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close(); break
    except OSError: time.sleep(0.1)' "$PORT"
    exec "$PWD/target/release/peer-rabbitmq" "$2" "$3"
    ;;
esac
