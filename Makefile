# What people do with the tree. The steps themselves are in scripts/.

.PHONY: run release packages image test test-long test-weekly sim bench figures fmt tools

# Serves port 11211 on loopback from 256 MiB of DRAM and a 2 GiB file, with a live page on port 11212.
run:
	cargo build --release --package terrace
	mkdir -p data
	exec "$${CARGO_TARGET_DIR:-target}"/release/terrace -u "$$(id -un)" -m 256 \
	    --tier ssd:data/tier:2g -l 127.0.0.1 -p 11211 --admin 127.0.0.1:11212

# The binary to install, target/guided/terrace, guided by a profile; takes about four minutes.
release:
	scripts/release.sh

# target/packages: a Debian package, an RPM, a tar archive with a static binary, a list of all crates, and checksums;
# takes about ten minutes.
packages: tools
	scripts/packages.sh

# target/image: the container image for amd64 and arm64, an OCI archive; takes about ten minutes.
image:
	scripts/tools.sh arm64
	scripts/image.sh

# Formatting, lints, and tests with time limits, in about 20 minutes on two cores; installs what they need.
test: tools
	scripts/test.sh

# What takes longer, in about half an hour: crashes, real clients, routers, packages, images, a chart, a browser.
test-long: tools
	scripts/test-long.sh

# What takes hours, before something is called done.
test-weekly:
	scripts/tools.sh arm64
	scripts/test-weekly.sh

# The whole cache in simulation, seed after seed from FROM on, for so long; see docs/simulator.md.
sim: SECONDS ?= 600
sim: FROM ?= 1000000
sim:
	cargo run --release --package terrace-sim -- --from $(FROM) --seconds $(SECONDS)

# All rows of docs/measured.md on the build to install, in about two and a half hours on two cores, and that page.
bench: tools release
	TERRACE_BENCH_SERVER="$${CARGO_TARGET_DIR:-target}"/guided/terrace bench/run --record all; \
	    status=$$?; bench/table && exit $$status

# The figures of docs/figures.md, beside memcached, extstore, RocksDB and LevelDB, in about 30 minutes; QUICK=1
# for a few, RESUME=1 for those that are missing.
figures: tools
	bench/figures/run $(if $(QUICK),--quick) $(if $(RESUME),--resume)

fmt:
	cargo fmt --all

# memcached and what else tests and benchmarks compare with.
tools:
	scripts/tools.sh
