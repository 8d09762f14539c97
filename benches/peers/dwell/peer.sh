#!/bin/sh
# dwell itself: `http` is a broker and a client of it, `library` is the broker inside the client's process.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
client="$here/target/$2/release/peer-dwell"
case "$1" in
install)
    # The client depends on the crates that dwell does, in the versions that dwell does.
    cp "$root/Cargo.lock" "$here/Cargo.lock"
    cd "$here"
    case "$2" in
    http)
        cargo build --manifest-path "$root/Cargo.toml" --target-dir "$root/target" --release --locked --bin dwell
        cargo build --release --target-dir target/http
        ;;
    library) cargo build --release --target-dir target/library --features library ;;
    esac
    ;;
about)
    sed -n '/^version = /{s/version = "\(.*\)"/\1/p;q}' "$root/Cargo.toml"
    case "$2" in
    http) echo "dwell serve over Redis, 8 partitions; batches of 100, 8 connections for producers and 8 for consumers, long polls" ;;
    library) echo "in the client's process over Redis, 8 partitions; batches of 500, 4 producers and 4 consumers" ;;
    esac
    ;;
run)
    if [ "$2" = http ]; then
        "$root/target/release/dwell" serve --listen "127.0.0.1:$PORT" --redis "redis://127.0.0.1:$REDIS_PORT" --data-dir "$DATA/dwell" >/dev/null &
        curl -s --retry 100 --retry-delay 0 --retry-connrefused --retry-max-time 10 -o /dev/null "http://127.0.0.1:$PORT/readyz"
    fi
    exec "$client" "$2" "$3"
    ;;
esac
