#!/bin/sh
# Makes passwords and tokens, one file each, in the directory of the first argument, or else in secrets/ beside this
# script, where compose.yaml reads them; then also .env, which names the group they belong to. What is there already stays
# as it is.
#   deploy/secrets.sh [deploy/kubernetes/overlays/example/secrets]
set -eu
umask 027
here=$(cd "$(dirname "$0")" && pwd)
secrets=${1:-$here/secrets}
mkdir -p "$secrets"
chmod 0750 "$secrets"
for name in redis-password dwell-admin dwell-app dwell-hand-over dwell-metrics grafana-admin; do
  [ -s "$secrets/$name" ] && continue
  # 256 bits, as visible characters.
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$secrets/$name.new"
  mv "$secrets/$name.new" "$secrets/$name"
done
chmod 0640 "$secrets"/*
# With rootless Docker this has to be 0, which is the user's own group inside.
[ $# -gt 0 ] || [ -s "$here/.env" ] || echo "SECRETS_GID=$(id -g)" > "$here/.env"
