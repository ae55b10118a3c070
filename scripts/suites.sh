# shellcheck shell=bash
# Runs suites under time limits and counts tests. Sourced by test.sh and test-long.sh.

passed=0
failed=0
skipped=0
broken=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# suite NAME SECONDS COMMAND...: a suite that fails, or takes longer, is remembered, and the next
# one runs all the same.
suite() {
    local name=$1 seconds=$2 start=$SECONDS status=0
    shift 2
    echo "== $name (at most $seconds s): $*"
    timeout --kill-after=10 "$seconds" "$@" 2>&1 | tee "$log" || status=$?
    case $status in
        0) ;;
        124 | 137) broken+=("$name: not done after $seconds s; took long:$(long_tests)") ;;
        *) broken+=("$name: exit code $status") ;;
    esac
    count
    echo "== $name: $((SECONDS - start)) s"
}

# The tests that the harness had to tell it waits for; one that hangs is among them.
long_tests() {
    sed -n 's/^test \(.*\) has been running for over .*/ \1/p' "$log" | tr -d '\n'
}

# Adds up what cargo's test harness, and tests that can't run here, printed.
count() {
    local sums
    sums=$(awk '/^test result:/ { p += $4; f += $6; i += $8 } match($0, /skipped: .*/) && !seen[substr($0, RSTART)]++ { i++; p-- }
                END { print p + 0, f + 0, i + 0 }' "$log")
    read -r p f s <<<"$sums"
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$((skipped + s))
}

# The closing line; the exit code says whether all is well.
summary() {
    printf '%s\n' "${broken[@]+"${broken[@]}"}"
    echo "$1: $passed passed, $failed failed, $skipped skipped, ${#broken[@]} suites broken, $SECONDS s"
    [ "$failed" = 0 ] && [ ${#broken[@]} = 0 ]
}
