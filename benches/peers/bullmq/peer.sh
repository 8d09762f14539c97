#!/bin/sh
# BullMQ: one process of node with the producer and the worker.
set -eu
cd "$(dirname "$0")"
case "$1" in
install) npm install --silent --no-audit --no-fund ;;
about)
    echo "$(node -p "require('./node_modules/bullmq/package.json').version"), node $(node --version)"
    echo "addBulk of 500, 4 at a time; one worker, concurrency 300, completed jobs removed; producer and worker in one process"
    ;;
run) exec node peer.js "$3" ;;
esac
