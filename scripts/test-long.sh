#!/usr/bin/env bash
# The tests whose findings grow with time, for longer: mixed loads on the real binary in release
# build, and more cases of every property.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/suites.sh
source scripts/suites.sh

# The build to install, as people make it.
suite guided 900 tests/instructions/guided

export PROPTEST_CASES=${PROPTEST_CASES:-5000}
export TERRACE_E2E_SECONDS=${TERRACE_E2E_SECONDS:-30}
# Fifty test binaries, each linked with optimisation over all crates, would take ten minutes.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
suite build 1200 cargo test --quiet --release --workspace --no-run
for package in terrace-protocol terrace-device terrace-policy terrace-cache terrace; do
    suite "$package" 600 scripts/run-tests --release "$package"
done
# The plan's model against real servers; as make test built them, since what a release build takes of the
# processor can be told on a quiet machine only.
suite terrace-plan 600 scripts/run-tests terrace-plan --test against_the_server
# A real trace.
suite replay 600 tests/replay/run --test
# So many by binary requests and as many by text, in four minutes; docs/measured.md tells of ten million.
suite differential 1800 env TERRACE_DIFFERENTIAL_OPS="${TERRACE_DIFFERENTIAL_OPS:-1000000}" \
    scripts/run-tests --release terrace \
    --test differential_binary --test differential_text -- --nocapture
suite fio 300 env TERRACE_PROBE_FIO=1 \
    scripts/run-tests --release terrace-probe --test fio -- --nocapture
# The same seeds every time, so that a change alone can fail; `make test-weekly` takes more, `make sim` looks for new ones.
suite simulator 600 cargo run --quiet --release --package terrace-sim -- --from 100000 --seeds 8000
suite ladder 300 cargo run --quiet --release --package terrace-sim -- --ladder --from 100000 --seeds 2000
suite silence 300 cargo run --quiet --release --package terrace-sim -- --ladder --silent --from 100000 --seeds 2000
# Each takes a build; `make test-weekly` tries all of them.
suite traps 600 sim/traps/run sim/traps/{delete-resurrection,suspended-names-decided-one-by-one}.patch
suite terrace-e2e 900 scripts/run-tests --release terrace-e2e --test mixed_load
# With Django's, dogpile.cache's and cachelib's own tests, which take a minute to install and half a minute to run.
suite clients 600 scripts/run-tests --release terrace-e2e --test real_clients -- --include-ignored
suite crowd 300 env TERRACE_E2E_CROWD=10000 \
    scripts/run-tests --release terrace-e2e --test crowd -- --nocapture
# 60 of them take about two minutes.
suite crash 900 env TERRACE_CRASH_ROUNDS="${TERRACE_CRASH_ROUNDS:-60}" \
    scripts/run-tests --release terrace-e2e --test crash -- --nocapture
# Three nodes behind routers, one of them killed and back: about 80 seconds.
suite routers 300 tests/routers/run --test
# A build that calls its format the next one.
suite next-format 900 scripts/next-format.sh
suite upgrade 300 env TERRACE_E2E_NEXT_FORMAT="$(realpath "${CARGO_TARGET_DIR:-target}")/next-format/terrace" \
    scripts/run-tests --release terrace-e2e --test restart -- upgrade
summary test-long
