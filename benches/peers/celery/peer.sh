#!/bin/sh
# Celery: producers and workers are processes of their own, with the interpreter in venv/.
set -eu
cd "$(dirname "$0")"
case "$1" in
install)
    [ -x venv/bin/python ] || python3 -m venv venv
    venv/bin/pip install -q -r requirements.txt
    ;;
about)
    venv/bin/python -c '
from importlib.metadata import version
import platform
print("{}, kombu {}, redis-py {}, Python {}".format(*map(version, ("celery", "kombu", "redis")), platform.python_version()))'
    echo "over Redis, with an eta; acks_late, so that a task is acked when it has run; no results; 4 producer processes, which send one by one, since Celery has no batches; 2 workers, each with one thread for tasks and unlimited prefetch, without gossip, mingle, heartbeat, remote control and rate limits; tasks with an eta wait in the workers' memory, unacked"
    ;;
# A worker that is run by root warns of it, at length.
run) exec venv/bin/python -W ignore peer.py "$3" ;;
esac
