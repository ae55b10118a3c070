#!/usr/bin/env bash
# Makes the container image in target/image, an OCI archive with a manifest for all architectures: one static binary, no
# shell. It needs no daemon, and pulls nothing.
#
# scripts/image.sh [--output FOLDER] [ARCHITECTURE[=BINARY]]...: amd64 and arm64 unless told. Binaries that are not named are built, that
# of this machine guided by a profile.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
output=$target/image
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Images of one commit are alike.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

call_buildah() {
    buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"
}

machine_of() {
    case "$1" in
        amd64) echo x86_64 ;;
        arm64) echo aarch64 ;;
        *) echo "$1: write amd64 or arm64" >&2; return 64 ;;
    esac
}

# build MACHINE: prints the path of its binary.
build() {
    local triple=$1-unknown-linux-musl
    if [ "$1" = "$(uname -m)" ]; then
        scripts/release.sh "$triple" >&2
        echo "$target/guided/$triple/terrace"
    else
        cargo build --quiet --release --package terrace --target "$triple"
        echo "$target/$triple/release/terrace"
    fi
}

# strip_to MACHINE FROM TO
# Names of functions, which packages keep, would be a sixth of the image.
strip_to() {
    local strip=strip
    [ "$1" = "$(uname -m)" ] || strip=$1-linux-gnu-strip
    "$strip" --strip-all -o "$3" "$2"
}

if [ "${1:-}" = --output ]; then
    output=$(realpath -m "$2")
    shift 2
fi
[ $# -gt 0 ] || set -- amd64 arm64
call_buildah manifest create "terrace:$version" >/dev/null
for wanted in "$@"; do
    architecture=${wanted%%=*}
    machine=$(machine_of "$architecture")
    case "$wanted" in
        *=*) binary=${wanted#*=} ;;
        *) binary=$(build "$machine") ;;
    esac
    context=$work/$architecture
    install -d "$context/files/usr/bin" "$context/files/etc" "$context/data"
    strip_to "$machine" "$binary" "$context/files/usr/bin/terrace"
    ln -s terrace "$context/files/usr/bin/memcached"
    install -m 644 deploy/image/passwd deploy/image/group "$context/files/etc/"
    install -D -m 644 LICENSE "$context/files/usr/share/doc/terrace/LICENSE"
    call_buildah bud --quiet --isolation chroot --arch "$architecture" --os linux --timestamp "$epoch" \
        --label org.opencontainers.image.title=terrace \
        --label "org.opencontainers.image.version=$version" \
        --label org.opencontainers.image.licenses=Apache-2.0 \
        --label org.opencontainers.image.source=https://github.com/terrace-cache/terrace \
        --manifest "terrace:$version" --file deploy/image/Containerfile "$context" >/dev/null
done
mkdir -p "$output"
archive=$output/terrace-$version-oci.tar
rm -f "$archive"
call_buildah manifest push --quiet --all "terrace:$version" "oci-archive:$archive:terrace:$version" >/dev/null
(cd "$output" && sha256sum "$(basename "$archive")" >SHA256SUMS)
echo "$archive"
