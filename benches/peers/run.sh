#!/bin/sh
# Measures dwell and its peers in the same run: benches/peers/run.sh [peer...]
# A peer is a folder here, with a mode where it has some: dwell-http, bullmq, beanstalkd-memory; none means all.
# README.md says what is measured, and how to change the counts.
set -eu
cd "$(dirname "$0")"
python3 measure.py "$@"
python3 table.py
