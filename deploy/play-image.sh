#!/usr/bin/env bash
# Plays the last stage of the Dockerfile without a container engine: its COPY lines fill a scratch root, and its ENTRYPOINT, CMD,
# HEALTHCHECK and STOPSIGNAL are run in there as its USER.
#   deploy/play-image.sh [target/dwell-static]
# BINARY has to be static: it is what the stage `build` makes of deploy/build-static.sh, as `make static` does. Needs root and curl.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${1:-target/dwell-static}
root=$(mktemp -d)
chmod 0755 "$root"
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$root"' EXIT

fail() { echo "play-image: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "only root may change its root"

# The instructions of the last stage, each on one line.
stage=$(sed -e ':a' -e '/\\$/N; s/\\\n//; ta' -e '/^#/d' deploy/Dockerfile | awk '/^FROM /{ lines = "" } { lines = lines $0 "\n" } END { printf "%s", lines }')
said() { sed -n "s/^$1 //p" <<< "$stage"; }
words() { tr -d '[]",' <<< "$1"; }

# What the stage `build` leaves, and where it is here.
built() {
  case $1 in
    /out/dwell) echo "$binary" ;;
    /out/data) mkdir -p "$root.data" && echo "$root.data" ;;
    /etc/ssl/certs/ca-certificates.crt) echo "$1" ;;
    *) fail "the stage build is not known to make $1" ;;
  esac
}

while read -r line; do
  owner=0:0 mode="" from=""
  read -ra parts <<< "$line"
  sources=()
  for part in "${parts[@]}"; do
    case $part in
      --from=*) from=${part#*=} ;;
      --chown=*) owner=${part#*=} ;;
      --chmod=*) mode=${part#*=} ;;
      *) sources+=("$part") ;;
    esac
  done
  to=$root${sources[-1]}
  unset 'sources[-1]'
  mkdir -p "$(dirname "$to")"
  case $to in */) mkdir -p "$to" ;; esac
  for source in "${sources[@]}"; do
    [ -z "$from" ] || source=$(built "$source")
    cp -rT "$source" "$( [ -d "$to" ] && [ -f "$source" ] && echo "$to/$(basename "$source")" || echo "$to")"
  done
  chown -R "$owner" "$to"
  [ -z "$mode" ] || chmod "$mode" "$to"
done < <(said COPY)
rm -rf "$root.data"

data=$(said VOLUME)
inside=(env -i PATH="$PATH" "$(said ENV)" DWELL_LISTEN="unix:$data/dwell.sock" DWELL_SERVER="unix:$data/dwell.sock"
  chroot --userspec="$(said USER)" "$root")
read -ra entrypoint <<< "$(words "$(said ENTRYPOINT)")"
read -ra command <<< "$(words "$(said CMD)")"
read -ra health <<< "$(words "$(said HEALTHCHECK | sed 's/.* CMD //')")"

"${inside[@]}" "${entrypoint[@]}" --version
"${inside[@]}" "${entrypoint[@]}" "${command[@]}" > "$root/log" 2>&1 &
pid=$!
for _ in $(seq 300); do
  "${inside[@]}" "${health[@]}" > /dev/null 2>&1 && break
  kill -0 "$pid" 2>/dev/null || fail "it ended: $(cat "$root/log")"
  sleep 0.1
done
"${inside[@]}" "${health[@]}" || fail "the health check fails: $(cat "$root/log")"
curl --silent --show-error --fail --unix-socket "$root$data/dwell.sock" --data hello 'http://dwell/v1/topics/hello/messages?delay=0s'
echo
kill -s "$(said STOPSIGNAL)" "$pid"
wait "$pid" || fail "it does not stop in order: $(cat "$root/log")"
pid=
echo "play-image: passed"
