#!/usr/bin/env bash
# Formatting, lints, and tests, each suite under a time limit; what takes longer is in test-long.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/suites.sh
source scripts/suites.sh

suite format 60 cargo fmt --all --check
suite licences 120 scripts/licences.sh
suite python 60 scripts/python.sh
suite lints 900 cargo clippy --quiet --workspace --all-targets -- -D warnings
suite build 900 cargo test --quiet --workspace --no-run
suite examples 300 cargo test --quiet --workspace --doc
for package in terrace-amounts terrace-protocol terrace-device terrace-policy terrace-nvme terrace-export terrace-cache terrace-runtime terrace-load terrace-plot terrace-probe terrace-trace terrace terrace-sim; do
    suite "$package" 600 scripts/run-tests "$package"
done
# Its model against servers: make test-long.
suite terrace-plan 300 scripts/run-tests terrace-plan --lib
suite simulator 300 cargo run --quiet --release --package terrace-sim -- --seeds 1500
suite traps-fit 60 sim/traps/run --fit
suite ladder 300 cargo run --quiet --release --package terrace-sim -- --ladder --seeds 300
suite members 200 cargo run --quiet --release --package terrace-sim -- --members --seeds 500
suite silence 120 cargo run --quiet --release --package terrace-sim -- --silent --seeds 500
suite models 600 env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
    cargo test --quiet --package terrace-cache --lib loom_
suite terrace-e2e 900 scripts/run-tests terrace-e2e
suite instructions 300 tests/instructions/run
# Figures that were measured with other sources: told, no failure.
bench/table --stale || true
summary test
