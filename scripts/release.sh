#!/usr/bin/env bash
# Builds the binary to install, guided by a profile (PGO): an instrumented build, bench/train.py's load on it, and
# a build with what that counted. It executes fewer instructions per request than
# `cargo build --release` does, which tests/instructions/guided checks (docs/bench.md, *Build*). The binary is target/guided/terrace; with a TARGET of rustc's that this
# machine can run, such as x86_64-unknown-linux-musl, it is target/guided/TARGET/terrace.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p "${CARGO_TARGET_DIR:-target}"
guided=$(realpath "${CARGO_TARGET_DIR:-target}")/guided
host=$(rustc --version --verbose | sed -n 's/^host: //p')
target=${1:-$host}
[ "$target" = "$host" ] || guided=$guided/$target

# build FOLDER FLAG. Where a target is named, flags are not those of build scripts and macros.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $2" CARGO_TARGET_DIR=$guided/$1 \
        cargo build --quiet --release --package terrace --target "$target"
}

scripts/profdata.sh >/dev/null || rustup component add llvm-tools || true
if ! profdata=$(scripts/profdata.sh); then
    echo "no llvm-profdata, which \`rustup component add llvm-tools\` installs; \`cargo build --release\` does without" >&2
    exit 1
fi
echo "instrumented build"
build instrumented "-Cprofile-generate=$guided/counts"
cargo build --quiet --release --package terrace-load
echo "load on it"
rm -rf "$guided/counts"
python3 -B bench/train.py "$guided/instrumented/$target/release/terrace"
"$profdata" merge --output "$guided/profile" "$guided/counts"/*.profraw
echo "guided build"
build optimized "-Cprofile-use=$guided/profile"
install -m 755 "$guided/optimized/$target/release/terrace" "$guided/terrace"
echo "$guided/terrace"
