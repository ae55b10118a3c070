#!/usr/bin/env bash
# Makes packages of Terrace in target/packages: a Debian package, an RPM, a tar archive with a static binary, a list of
# the crates in it (SBOM, CycloneDX), and their checksums.
#
# scripts/packages.sh [--binary FILE] [--static FILE] [--version VERSION] [--output FOLDER] [deb|rpm|tar|sbom]...
#
# Binaries that are not named are built, guided by a profile, in four minutes each. RELEASE=1 refuses figures that
# were measured with other sources.
set -euo pipefail
cd "$(dirname "$0")/.."

binary='' static='' output=''
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
kinds=()
while [ $# -gt 0 ]; do
    case "$1" in
        --binary) binary=$2; shift ;;
        --static) static=$2; shift ;;
        --version) version=$2; shift ;;
        --output) output=$2; shift ;;
        deb | rpm | tar | sbom) kinds+=("$1") ;;
        *) echo "$1: write deb, rpm, tar or sbom" >&2; exit 64 ;;
    esac
    shift
done
[ ${#kinds[@]} -gt 0 ] || kinds=(deb rpm tar sbom)

# Figures of a release are those of its sources.
if [ -n "${RELEASE:-}" ] && ! bench/table --stale; then
    echo "measure these rows again (bench/run --record ROW, then bench/table), or build without RELEASE" >&2
    exit 1
fi

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
output=$(realpath -m "${output:-$target/packages}")
mkdir -p "$output"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# Archives of one commit are alike.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
machine=$(uname -m)

# lay BINARY FOLDER UNIT_PATH: the files of a package, below FOLDER. The unit starts /UNIT_PATH.
lay() {
    local folder=$2 share=$2/share page
    install -D -m 755 "$1" "$folder/bin/terrace"
    # Names of functions stay, for profiles and for what a panic prints.
    strip --strip-debug "$folder/bin/terrace"
    install -D -m 644 deploy/terrace.toml "$folder/etc/terrace.toml"
    install -D -m 644 deploy/terrace.service "$folder/lib/systemd/system/terrace.service"
    sed -i "s#^ExecStart=/usr/local/bin/#ExecStart=$3/#" "$folder/lib/systemd/system/terrace.service"
    for page in deploy/package/man/*.1; do
        install -D -m 644 "$page" "$share/man/man1/$(basename "$page")"
    done
    gzip --best --no-name "$share/man/man1/"*.1
    install -D -m 644 deploy/package/completions/terrace.bash "$share/bash-completion/completions/terrace"
    install -D -m 644 deploy/package/completions/terrace.fish "$share/fish/vendor_completions.d/terrace.fish"
    install -d "$share/doc/terrace"
    install -m 644 README.md CHANGELOG.md LICENSE "$share/doc/terrace/"
}

# The newest version of glibc that a binary asks for.
glibc() {
    objdump -T "$1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1
}

# package KIND ARCHITECTURE FILE, by nfpm.
package() {
    local kind=$1 folder=$stage/$1 zsh=site-functions
    [ "$kind" = rpm ] || zsh=vendor-completions
    lay "$binary" "$folder" /usr/bin
    install -D -m 644 deploy/package/completions/_terrace "$folder/share/zsh/$zsh/_terrace"
    [ "$kind" = rpm ] || install -D -m 644 deploy/package/copyright "$folder/share/doc/terrace/copyright"
    STAGE=$folder PACKAGE_VERSION=$version PACKAGE_ARCH=$2 GLIBC=$(glibc "$folder/bin/terrace") \
        .cache/nfpm package --config deploy/package/nfpm.yaml --packager "$kind" --target "$output/$3" >/dev/null
    echo "$output/$3"
}

archive() {
    local name=terrace-$version-$machine-linux
    lay "$static" "$stage/$name" /usr/local/bin
    install -D -m 644 deploy/package/completions/_terrace "$stage/$name/share/zsh/site-functions/_terrace"
    tar --directory "$stage" --create --xz --file "$output/$name.tar.xz" --sort=name --owner=0 --group=0 \
        --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "$name"
    echo "$output/$name.tar.xz"
}

# cargo-cyclonedx writes beside each manifest, so that it has a copy of them.
sbom() {
    local tool=.cache/cyclonedx/bin/cargo-cyclonedx copy=$stage/sbom file=$output/terrace-$version.cdx.json
    if [ ! -x "$tool" ]; then
        echo "installing cargo-cyclonedx, in about two minutes"
        cargo install --quiet --locked --root .cache/cyclonedx cargo-cyclonedx@0.5.9
    fi
    mkdir "$copy"
    git ls-files --cached --others --exclude-standard -z crates tests/e2e sim Cargo.toml Cargo.lock |
        tar --create --null --files-from - | tar --extract --directory "$copy"
    "$tool" cyclonedx --quiet --manifest-path "$copy/crates/server/Cargo.toml" --format json --spec-version 1.5 \
        --override-filename terrace.cdx
    sed "s#path+file://$copy#path+file://#g" "$copy/crates/server/terrace.cdx.json" >"$file"
    echo "$file"
}

case " ${kinds[*]} " in
    *" deb "* | *" rpm "*)
        if [ ! -x .cache/nfpm ]; then
            echo "no nfpm, which \`scripts/tools.sh\` builds where Go is installed" >&2
            exit 1
        fi
        [ -n "$binary" ] || { scripts/release.sh && binary=$target/guided/terrace; }
        ;;&
    *" tar "*)
        musl=$machine-unknown-linux-musl
        [ -n "$static" ] || { scripts/release.sh "$musl" && static=$target/guided/$musl/terrace; }
        ;;
esac
case "$machine" in
    x86_64) debian=amd64 ;;
    aarch64) debian=arm64 ;;
    *) debian=$machine ;;
esac
for kind in "${kinds[@]}"; do
    case "$kind" in
        deb) package deb "$debian" "terrace_${version}_$debian.deb" ;;
        rpm) package rpm "$machine" "terrace-$version-1.$machine.rpm" ;;
        tar) archive ;;
        sbom) sbom ;;
    esac
done
(
    cd "$output"
    shopt -s nullglob
    sha256sum -- *.deb *.rpm *.tar.xz *.cdx.json >SHA256SUMS
)
