#!/bin/sh
# Makes the passwords and tokens that compose.yaml reads, in secrets/ beside this script, and .env, which names the group
# they belong to. What is there already stays as it is.
set -eu
umask 027
cd "$(dirname "$0")"
mkdir -p secrets
chmod 0750 secrets
for name in redis-password dwell-admin dwell-app dwell-metrics grafana-admin; do
  [ -s "secrets/$name" ] && continue
  # 256 bits, as visible characters.
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "secrets/$name.new"
  mv "secrets/$name.new" "secrets/$name"
done
chmod 0640 secrets/*
# With rootless Docker this has to be 0, which is the user's own group inside.
[ -s .env ] || echo "SECRETS_GID=$(id -g)" > .env
