#!/bin/sh
# Builds the static binary of this machine's architecture and writes it where the first argument says:
#   deploy/build-static.sh [target/dwell-static]
# Needs Rust with rustup, and musl-gcc (Debian: musl-tools). The Dockerfile calls it; it needs no container.
set -eu
out=${1:-target/dwell-static}

arch=$(uname -m)
target=$arch-unknown-linux-musl
command -v musl-gcc >/dev/null || { echo "build-static: musl-gcc is needed (Debian: apt-get install musl-tools)" >&2; exit 1; }
rustup target list --installed | grep -qx "$target" || rustup target add "$target"

# ring and the allocator are C; what links them is rustc's own musl.
variable=$(printf %s "$target" | tr - _)
export "CC_$variable=musl-gcc"
cargo build --locked --release --bin dwell --target "$target"

built=${CARGO_TARGET_DIR:-target}/$target/release/dwell
# A binary that needs a loader would not start in an empty image.
if readelf --program-headers "$built" | grep -q INTERP; then
  echo "build-static: $built is not static" >&2
  exit 1
fi
mkdir -p "$(dirname "$out")"
cp "$built" "$out"
