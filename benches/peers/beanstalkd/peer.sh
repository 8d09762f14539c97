#!/bin/sh
# beanstalkd: `memory` keeps nothing, `f50` and `f0` write a log that is synced every 50 ms, and at every write.
set -eu
cd "$(dirname "$0")"
# The one of this machine, or else the package of Debian, unpacked here.
server=$(command -v beanstalkd || echo "$PWD/package/usr/bin/beanstalkd")
case "$1" in
install)
    if [ ! -x "$server" ]; then
        mkdir -p package
        (cd package && apt-get download -qq beanstalkd && dpkg-deb -x beanstalkd_*.deb .)
    fi
    cargo build --release --locked --target-dir target
    ;;
about)
    "$server" -v | sed 's/beanstalkd //'
    case "$2" in
    memory) log="no log" ;;
    f50) log="-b with -f50: up to 50 ms can be lost" ;;
    f0) log="-b with -f0: synced at every write" ;;
    esac
    echo "$log; 500 commands pipelined, 4 connections for producers and 4 for consumers; delays are whole seconds"
    ;;
run)
    log=""
    case "$2" in f*) log="-b $DATA -$2" ;; esac
    # shellcheck disable=SC2086 # words on purpose
    "$server" -l 127.0.0.1 -p "$PORT" $log >&2 &
    python3 -c '
import socket, sys, time
for _ in range(200):
    try: socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close(); break
    except OSError: time.sleep(0.02)' "$PORT"
    exec "$PWD/target/release/peer-beanstalkd" "$3"
    ;;
esac
