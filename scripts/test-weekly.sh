#!/usr/bin/env bash
# What takes hours and is run before something is called done: all known mistakes, more seeds, more crashes, more
# requests beside memcached, and the rows of memory at their full size.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/suites.sh
source scripts/suites.sh

export PROPTEST_CASES=${PROPTEST_CASES:-50000}
export TERRACE_E2E_SECONDS=${TERRACE_E2E_SECONDS:-300}
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
suite build 1800 cargo test --quiet --release --workspace --no-run
for package in terrace-protocol terrace-device terrace-policy terrace-cache terrace-runtime terrace; do
    suite "$package" 3600 scripts/run-tests --release "$package"
done
# Beside fio, on a drive that nothing else uses.
suite fio 600 env TERRACE_PROBE_FIO=1 \
    scripts/run-tests --release terrace-probe --test fio -- --nocapture
suite simulator 3600 cargo run --quiet --release --package terrace-sim -- --from 200000 --seeds 60000
suite ladder 1800 cargo run --quiet --release --package terrace-sim -- --ladder --from 200000 --seeds 10000
suite members 1800 cargo run --quiet --release --package terrace-sim -- --members --from 200000 --seeds 20000
suite silence 1800 cargo run --quiet --release --package terrace-sim -- --ladder --silent --from 200000 --seeds 10000
suite traps 7200 sim/traps/run
suite differential 7200 env TERRACE_DIFFERENTIAL_OPS=10000000 \
    scripts/run-tests --release terrace \
    --test differential_binary --test differential_text -- --nocapture
# 10,000 idle connections, 1,000 half SETs, 1,000 clients that never read, 300 with TLS, and all of that at once.
suite connection-memory 600 env TERRACE_E2E_CONNECTIONS=100 \
    scripts/run-tests --release terrace-e2e --test connection_memory -- --nocapture --test-threads 1
suite big-readers 300 env TERRACE_E2E_READERS=1000 \
    scripts/run-tests --release terrace-e2e --test big_readers -- --nocapture
suite crash 3600 env TERRACE_CRASH_ROUNDS=300 \
    scripts/run-tests --release terrace-e2e --test crash -- --nocapture
suite orphans 3600 env TERRACE_ORPHAN_ROUNDS=50 \
    scripts/run-tests --release terrace-e2e --test orphans -- --nocapture
suite terrace-e2e 3600 scripts/run-tests --release terrace-e2e --test mixed_load
# Under qemu: no figure, but every path that the other processor takes.
suite arm64 3600 scripts/arm64.sh
suite packages 1800 env TERRACE_PACKAGES_SBOM=1 tests/packages/run
suite image 1800 tests/image/run --all
# Linux' NVMe/TCP target and initiator in emulated guests.
suite guest 3600 tests/guest/run
summary test-weekly
