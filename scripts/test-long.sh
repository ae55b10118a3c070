#!/usr/bin/env bash
# What takes too long for `make test`: mixed loads, crashes, clients and routers on the binary to install, a real
# trace, more seeds of the simulator. Tests are those that `make test` built: built anew with optimisation, and with
# more cases of every property, they are part of `make test-weekly`.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/suites.sh
source scripts/suites.sh

# The build to install, as people make it.
suite guided 900 tests/instructions/guided
guided=$(realpath -m "${CARGO_TARGET_DIR:-target}")/guided/terrace

export TERRACE_E2E_SECONDS=${TERRACE_E2E_SECONDS:-20}
suite build 900 cargo test --quiet --workspace --no-run
# on_guided SECONDS TEST [ARGUMENTS...]: tests of terrace-e2e against that build, or an ordinary one where there is none.
on_guided() {
    local seconds=$1 test=$2 binary=()
    shift 2
    [ ! -x "$guided" ] || binary=("TERRACE_E2E_BINARY=$guided")
    suite "$test" "$seconds" env "${binary[@]}" scripts/run-tests terrace-e2e --test "$test" -- "$@"
}
# The plan's model against real servers.
suite terrace-plan 600 scripts/run-tests terrace-plan --test against_the_server
# A real trace.
suite replay 600 tests/replay/run --test
# So many by binary requests and as many by text; `make test-weekly` sends ten million.
suite differential 900 env TERRACE_DIFFERENTIAL_OPS="${TERRACE_DIFFERENTIAL_OPS:-300000}" \
    scripts/run-tests terrace --test differential_binary --test differential_text -- --nocapture
# The same seeds every time, so that a change alone can fail; `make test-weekly` takes more, `make sim` looks for new ones.
suite simulator 600 cargo run --quiet --release --package terrace-sim -- --from 100000 --seeds 6000
suite ladder 300 cargo run --quiet --release --package terrace-sim -- --ladder --from 100000 --seeds 2000
suite members 300 cargo run --quiet --release --package terrace-sim -- --members --from 100000 --seeds 4000
suite silence 300 cargo run --quiet --release --package terrace-sim -- --ladder --silent --from 100000 --seeds 2000
# Each takes a build; `make test-weekly` tries all of them.
suite traps 600 sim/traps/run sim/traps/{delete-resurrection,suspended-names-decided-one-by-one}.patch
on_guided 900 mixed_load
# With Django's, dogpile.cache's and cachelib's own tests, which take a minute to install and half a minute to run.
on_guided 600 real_clients --include-ignored
TERRACE_E2E_CROWD=10000 on_guided 300 crowd --nocapture
# 40 of them take about two minutes; `make test-weekly` has 300.
TERRACE_CRASH_ROUNDS=${TERRACE_CRASH_ROUNDS:-40} on_guided 900 crash --nocapture
# The live page in a browser: about a minute.
suite page 300 env TERRACE_E2E_BINARY="$([ -x "$guided" ] && echo "$guided")" tests/page/run
# Three nodes behind routers, one of them killed and back: about 80 seconds.
suite routers 300 tests/routers/run --test
# The Helm chart: linted, validated, and its pod run, warm after a kill and in a new pod.
suite chart 300 tests/chart/run
# Every command of README.md and docs/guide, but those that need another machine.
suite guide 300 tests/guide/run
# A build that calls its format the next one.
suite next-format 900 scripts/next-format.sh
suite upgrade 300 env TERRACE_E2E_NEXT_FORMAT="$(realpath "${CARGO_TARGET_DIR:-target}")/next-format/terrace" \
    scripts/run-tests terrace-e2e --test restart -- upgrade
# The packages on a Debian with systemd, and the image in containers: a minute each, and three for the Debian and the
# static binary.
suite packages 900 env TERRACE_PACKAGES_BINARY="$([ ! -x "$guided" ] || echo "$guided")" tests/packages/run
suite image 600 tests/image/run
# Linux' NVMe/TCP target and initiator in emulated guests; all of it is part of `make test-weekly`.
suite guest 600 env TERRACE_GUEST_BINARY="$([ ! -x "$guided" ] || echo "$guided")" tests/guest/run --fast
summary test-long
