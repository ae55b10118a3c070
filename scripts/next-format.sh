#!/usr/bin/env bash
# Builds target/next-format/terrace, which calls its format the next one. It is built in place of the tests' debug
# build, since little of that has to be built anew for it, and then that one is put back.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
# With a test besides, so that features are those of the tests.
build=(cargo build --quiet --workspace --bin terrace --test restart)
TERRACE_NEXT_FORMAT=1 "${build[@]}"
mkdir -p "$target/next-format"
cp "$target/debug/terrace" "$target/next-format/terrace"
"${build[@]}"
