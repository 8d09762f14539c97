#!/bin/sh
# rsmq_async: a library over Redis, from the registry of crates.
set -eu
cd "$(dirname "$0")"
case "$1" in
install) cargo build --release --locked --target-dir target ;;
about)
    sed -n '/^name = "rsmq_async"/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock
    echo "batches of 1,000, 4 connections; polled every 10 ms when empty; no batches for deletes and for pushes with different delays, so these are sent one by one, concurrently"
    ;;
run) exec "$PWD/target/release/peer-rsmq" "$3" ;;
esac
