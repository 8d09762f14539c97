#!/usr/bin/env bash
# Makes in target/package what is released: the crate, the Debian package, the archive of the binary with completions, man pages and
# licences, the SBOM, the chart, and SHA256SUMS of all.
#   deploy/package.sh BINARY [ARCHITECTURE]
# BINARY is that of the architecture, by default this machine's (x86_64 or aarch64). For another one HOST_BINARY names a dwell that
# runs here, which writes the completions and the man pages. `make package` installs the tools and calls this.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$(realpath "$1") arch=${2:-$(uname -m)}
host=$(realpath "${HOST_BINARY:-$binary}")
version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=target/package
stage=target/package-stage
name=dwell-$version-$arch-linux

step() { printf '\n== package: %s (%d s)\n' "$*" "$SECONDS"; }

step "what goes beside the binary"
rm -rf "$stage" && mkdir -p "$out" "$stage/$name" "$stage"/{completions,man}
cp "$binary" "$stage/dwell"
"$host" completions bash > "$stage/completions/dwell"
"$host" completions zsh > "$stage/completions/_dwell"
"$host" completions fish > "$stage/completions/dwell.fish"
"$host" man "$stage/man"
gzip -9n "$stage"/man/*
cp -r "$stage"/{dwell,completions,man} "$stage/$name"
cp LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md deploy/dwell.toml deploy/systemd/dwell.service "$stage/$name"

step "$name.tar.gz"
tar --create --gzip --file "$out/$name.tar.gz" --directory "$stage" --owner=0 --group=0 --sort=name "$name"

# The package has a user of its own, so that its files keep their owner.
step "Debian package"
sed -e 's|^ExecStart=/usr/local/bin/|ExecStart=/usr/bin/|' -e 's|^# A user that exists while.*|# Created by the package.|' \
  -e 's|^DynamicUser=yes|User=dwell\nGroup=dwell|' deploy/systemd/dwell.service > "$stage/dwell.service"
deb() { "$CARGO_DEB" deb --locked --no-build --no-strip --quiet --target "$arch-unknown-linux-musl" "$@"; }
deb --output "$out/"
if [ "$host" = "$binary" ] && [ "$(id -u)" = 0 ]; then
  deb --fast --deb-version "$version-2" --output "$stage/newer.deb"
  deploy/debian/test "$out"/dwell_"$version"-1_*.deb "$stage/newer.deb"
else
  echo "package: NOT TESTED: the Debian package, which needs root and this machine's architecture" >&2
fi

step "SBOM"
"$CARGO_CYCLONEDX" cyclonedx --quiet --format json --target "$arch-unknown-linux-musl" --override-filename "dwell-$arch.cdx"
sed "s|path+file://$PWD#||" "dwell-$arch.cdx.json" > "$out/dwell-$version-$arch.cdx.json"
rm "dwell-$arch.cdx.json"
