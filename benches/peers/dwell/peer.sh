#!/bin/sh
# dwell itself: `http` is a broker and a client of it, `library` is the broker inside the client's process.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
built=${CARGO_TARGET_DIR:-$root/target}/release
case "$1" in
install)
    cargo build --manifest-path "$root/Cargo.toml" --release --locked --bin dwell --example peer
    ;;
about)
    "$built/dwell" --version | sed 's/^dwell //'
    case "$2" in
    http) echo "dwell serve over Redis, 8 partitions; HTTP with batches of 100 over 8 connections for producers and 8 for consumers" ;;
    library) echo "in the client's process over Redis, 8 partitions; batches of 500, 4 producers and 4 consumers" ;;
    esac
    ;;
run)
    if [ "$2" = http ]; then
        "$built/dwell" serve --listen "127.0.0.1:$PORT" --redis "redis://127.0.0.1:$REDIS_PORT" --data-dir "$DATA/dwell" >&2 &
        curl -s --retry 100 --retry-delay 0 --retry-connrefused --retry-max-time 10 -o /dev/null "http://127.0.0.1:$PORT/readyz"
    fi
    exec "$built/examples/peer" "$2" "$3"
    ;;
esac
