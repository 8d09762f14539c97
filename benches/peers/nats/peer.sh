#!/bin/sh
# Its client is in Go: golang/ has it.
exec "$(dirname "$0")/../golang/peer.sh" "$1" nats "${3-}"
