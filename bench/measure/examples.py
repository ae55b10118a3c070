"""Small programs that only benchmarks need."""

import os
import subprocess

from .server import ROOT

PACKAGES = "terrace-load", "terrace-device", "terrace-remote"


def build_examples():
    """Builds the floor, the least client, and the loops of reads."""
    manifest = os.path.join(ROOT, "Cargo.toml")
    packages = [word for name in PACKAGES for word in ("--package", name)]
    command = ["cargo", "build", "--quiet", "--release", "--manifest-path", manifest, *packages]
    subprocess.run([*command, "--examples"], check=True)


def example(name):
    """The path of a built one."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "examples", name)
