#!/usr/bin/env bash
# Builds target/next-format/terrace, which calls its format the next one. It is built where the debug build of the
# tests is, as which it needs two crates built anew and not all; so that one is built again, too.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
# With a test besides, so that features are those of the tests.
build=(cargo build --quiet --workspace --bin terrace --test restart)
TERRACE_NEXT_FORMAT=1 "${build[@]}"
mkdir -p "$target/next-format"
cp "$target/debug/terrace" "$target/next-format/terrace"
"${build[@]}"
