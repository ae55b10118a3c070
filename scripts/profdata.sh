#!/usr/bin/env bash
# Says where the toolchain's llvm-profdata is; fails where it has none. `rustup component add llvm-tools` installs it.
compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/llvm-profdata"
