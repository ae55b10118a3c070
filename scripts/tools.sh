#!/usr/bin/env bash
# Installs what tests and benchmarks need: Debian packages where this user may, Rust components, and
# Python clients in .venv. What can't be had is told here, and skipped by name in the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

packages() {
    local missing=()
    command -v memcached >/dev/null || missing+=(memcached)
    command -v fio >/dev/null || missing+=(fio)
    command -v memccapable >/dev/null || missing+=(libmemcached-tools)
    [ -x /usr/sbin/nutcracker ] || missing+=(nutcracker)
    command -v unshare >/dev/null || missing+=(util-linux)
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
    [ ${#missing[@]} = 0 ] && return
    echo "installing ${missing[*]}"
    if ! { as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "${missing[@]}"; } >/tmp/terrace-tools.$$ 2>&1; then
        tail -n 3 /tmp/terrace-tools.$$
        echo "not installed: ${missing[*]}; tests that need them are skipped"
    fi
    rm -f /tmp/terrace-tools.$$
    # Both packages start a server of their own on a well-known port.
    for service in memcached nutcracker; do
        if [[ " ${missing[*]} " = *" $service "* ]]; then
            as_root service "$service" stop >/dev/null 2>&1 || true
        fi
    done
}

rust_components() {
    cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
    cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
}

python_clients() {
    local list=scripts/requirements.txt package
    cmp -s "$list" .venv/installed.txt && return
    rm -rf .venv
    python3 -m venv .venv || { echo "no Python environment; tests with Python clients are skipped"; return; }
    # One by one: where one can't be had, the others still can.
    while read -r package; do
        .venv/bin/pip install --quiet --disable-pip-version-check "$package" ||
            echo "not installed: $package; tests that need it are skipped"
    done <"$list"
    cp "$list" .venv/installed.txt
}

packages
rust_components
python_clients
