#!/usr/bin/env bash
# Installs what tests and benchmarks need: Debian packages where this user may, Rust components, and
# Python clients in .venv. What can't be had is told here, and skipped by name in the tests.
# `scripts/tools.sh arm64` installs besides what builds for arm64 and runs that here.
set -euo pipefail
cd "$(dirname "$0")/.."

# What comes over a network is asked for again before it is done without.
persist() {
    local attempt
    for attempt in 1 2; do
        "$@" && return
        sleep $((attempt * 5))
    done
    "$@"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

packages() {
    local missing=()
    command -v memcached >/dev/null || missing+=(memcached)
    command -v fio >/dev/null || missing+=(fio)
    command -v memccapable >/dev/null || missing+=(libmemcached-tools)
    command -v valgrind >/dev/null || missing+=(valgrind)
    [ -x /usr/sbin/nutcracker ] || missing+=(nutcracker)
    command -v unshare >/dev/null || missing+=(util-linux)
    command -v runc >/dev/null || missing+=(runc)
    command -v chromium >/dev/null || missing+=(chromium)
    command -v chromedriver >/dev/null || missing+=(chromium-driver)
    # Packages and the container image, and the Debian that they are tried on.
    command -v rpm >/dev/null || missing+=(rpm)
    command -v xz >/dev/null || missing+=(xz-utils)
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
    command -v buildah >/dev/null || missing+=(buildah)
    if [ "$1" = arm64 ]; then
        command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
        command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
    fi
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
    [ ${#missing[@]} = 0 ] && return
    echo "installing ${missing[*]}"
    local log
    log=$(mktemp)
    # Another apt may hold its lock for a while.
    local apt=(apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
    if ! { as_root true && persist as_root "${apt[@]}" update &&
        persist as_root env DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y \
            --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 3 "$log"
        echo "not installed: ${missing[*]}; tests that need them are skipped"
    fi
    rm -f "$log"
    # Both packages start a server of their own on a well-known port.
    for service in memcached nutcracker; do
        if [[ " ${missing[*]} " = *" $service "* ]]; then
            as_root service "$service" stop >/dev/null 2>&1 || true
        fi
    done
}

rust_components() {
    # The pinned toolchain, where rustup does not install it by itself.
    rustc --version >/dev/null 2>&1 ||
        persist rustup toolchain install "$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)" \
            --profile minimal --component rustfmt --component clippy
    cargo fmt --version >/dev/null 2>&1 || persist rustup component add rustfmt
    cargo clippy --version >/dev/null 2>&1 || persist rustup component add clippy
    # `make release` needs it, and its test.
    scripts/profdata.sh >/dev/null ||
        persist rustup component add llvm-tools >/dev/null 2>&1 || echo "not installed: llvm-tools; the guided build is not tested"
    # Static binaries.
    local target targets=("$(uname -m)-unknown-linux-musl")
    [ "$1" != arm64 ] || targets+=(aarch64-unknown-linux-musl)
    for target in "${targets[@]}"; do
        [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] ||
            persist rustup target add "$target" >/dev/null 2>&1 || echo "not installed: $target; its tests are skipped"
    done
}

python_clients() {
    local list=scripts/requirements.txt package
    cmp -s "$list" .venv/installed.txt && return
    rm -rf .venv
    python3 -m venv .venv || { echo "no Python environment; tests with Python clients are skipped"; return; }
    # One by one: where one can't be had, the others still can.
    while read -r package; do
        persist .venv/bin/pip install --quiet --disable-pip-version-check "$package" ||
            echo "not installed: $package; tests that need it are skipped"
    done <"$list"
    cp "$list" .venv/installed.txt
}

# go_program FOLDER PROGRAM PACKAGE: a program in Go, of the version that the module in FOLDER pins.
go_program() {
    local module=$1 program=$2
    command -v go >/dev/null || return 0
    [ ".cache/$program" -nt "$module/go.sum" ] && return
    mkdir -p .cache
    persist go build -C "$module" -o "$PWD/.cache/$program" "$3" >/dev/null 2>&1 ||
        echo "not installed: $program; its tests are skipped"
}

# Of Debian's package, without the server that would start with it.
fetch_promtool() {
    local folder
    folder=$(mktemp -d)
    (cd "$folder" && persist apt-get -qq download prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb .) &&
        cp "$folder/usr/bin/promtool" .cache/promtool
    rm -rf "$folder"
    [ -x .cache/promtool ]
}

packages "${1:-}"
rust_components "${1:-}"
python_clients
# Prometheus' exporter for memcached, which reads our statistics in a test.
go_program tests/clients/exporter memcached_exporter github.com/prometheus/memcached_exporter/cmd/memcached_exporter
# What makes the Debian package and the RPM.
go_program deploy/package/tools nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm
# What tests/chart/run checks the chart with; its schemas come with a Python package.
go_program tests/chart/tools helm helm.sh/helm/v3/cmd/helm
go_program tests/chart/tools kubeconform github.com/yannh/kubeconform/cmd/kubeconform
[ -x .cache/promtool ] || command -v promtool >/dev/null || fetch_promtool ||
    echo "not installed: promtool; tests of alerts and dashboard are skipped"
