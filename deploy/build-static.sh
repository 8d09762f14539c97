#!/bin/sh
# Builds a static binary and writes it where the first argument says:
#   deploy/build-static.sh [target/dwell-static] [ARCHITECTURE]
# For this machine's architecture it needs Rust with rustup, and musl-gcc (Debian: musl-tools); the Dockerfile calls it so, and it
# needs no container. For another one (x86_64, aarch64) it needs Python with venv instead of musl-gcc, and installs cargo-zigbuild and
# zig of PyPI in target/tools.
set -eu
out=${1:-target/dwell-static}
arch=${2:-$(uname -m)}
target=$arch-unknown-linux-musl
rustup target list --installed | grep -qx "$target" || rustup target add "$target"

if [ "$arch" = "$(uname -m)" ]; then
  command -v musl-gcc >/dev/null || { echo "build-static: musl-gcc is needed (Debian: apt-get install musl-tools)" >&2; exit 1; }
  # ring and the allocator are C; what links them is rustc's own musl.
  variable=$(printf %s "$target" | tr - _)
  export "CC_$variable=musl-gcc"
  cargo build --locked --release --bin dwell --target "$target"
else
  zig=target/tools/zigbuild-0.24.0
  [ -x "$zig/bin/cargo-zigbuild" ] || {
    python3 -m venv "$zig"
    "$zig/bin/pip" install --quiet cargo-zigbuild==0.24.0 ziglang==0.15.2
  }
  PATH="$PWD/$zig/bin:$PATH" cargo zigbuild --locked --release --bin dwell --target "$target"
fi

built=${CARGO_TARGET_DIR:-target}/$target/release/dwell
# A binary that needs a loader would not start in an empty image.
if readelf --program-headers "$built" | grep -q INTERP; then
  echo "build-static: $built is not static" >&2
  exit 1
fi
mkdir -p "$(dirname "$out")"
cp "$built" "$out"
