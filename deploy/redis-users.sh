#!/bin/sh
# Writes the users of a Redis for dwell, an aclfile, to stdout:
#   deploy/redis-users.sh DWELL_PASSWORD_FILE [ADMIN_PASSWORD_FILE] > /etc/redis/users.acl
# A password file holds the password and nothing else; what is written has its SHA-256 only. The user `dwell` may do what
# redis.acl beside this script says. Nobody else may do anything, but for the user `admin` if there is a file for it.
set -eu

# A line feed at the end is not part of a password, as dwell reads it.
digest() {
  password=$(tr -d '\r' < "$1")
  case $password in
  "" | *CHANGE-ME*) echo "redis-users: $1 has no password in it" >&2; exit 1 ;;
  esac
  printf %s "$password" | sha256sum | cut -d' ' -f1
}

dwell=$(digest "$1")
# Without this line everybody may do everything without a password. Nobody can log in as a user that is off; what it may do
# counts all the same: Redis reads its append-only file as this user, and without a word passes over each transaction, which
# a script is, that it may not run (issue 14541 of Redis, 3983 of Valkey). A plain `user default off` loses messages.
echo "user default off ~* &* +@all"
sed "s/ >password / #$dwell /" "${REDIS_ACL:-$(dirname "$0")/redis.acl}"
if [ $# -gt 1 ]; then
  admin=$(digest "$2")
  echo "user admin on #$admin ~* &* +@all"
fi
