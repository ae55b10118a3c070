"""The commands of README.md and docs/guide, run page by page. See `run`."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
# Programs that need another machine or much time, and what tries their lines instead.
ELSEWHERE = {
    "apt": "tests/packages",
    "systemctl": "tests/packages",
    "journalctl": "no systemd runs here",
    "sudoedit": "an editor",
    "podman": "tests/image",
    "tar": "tests/packages",
    "useradd": "tests/packages",
    "helm": "tests/chart",
    "make": "the suites themselves",
    "install": "it would change this machine",
}
PAGE_SECONDS = 180
# Where a page writes; each page begins with empty ones.
FOLDERS = ["/data", "/run/terrace", "/etc/terrace"]
MEMCACHED_CONF = "# As Debian has it.\n-d\nlogfile /var/log/memcached.log\n-m 64\n-p 11211\n-u memcache\n-l 127.0.0.1\n-l ::1\n"


def commands(text):
    """The lines of all `sh` blocks, those that go on joined with what follows."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        yield from (line.strip() for line in lines if line.strip())


def program(line):
    """The program of a line, without what runs it as another user."""
    words = [word for word in line.split() if word != "sudo" and "=" not in word]
    return os.path.basename(words[0])


def script(page):
    """What bash runs of a page, and what it does not: (script, left out)."""
    here, left_out = [], []
    with open(page) as file:
        lines = list(commands(file.read()))
    for line in lines:
        (left_out if program(line) in ELSEWHERE else here).append(line)
    return here, left_out


def run(page, binary):
    lines, left_out = script(page)
    name = os.path.relpath(page, ROOT)
    for line in left_out:
        print(f"skipped: {name}: {line} ({ELSEWHERE[program(line)]})")
    if not lines:
        return True, len(left_out)
    with tempfile.TemporaryDirectory() as folder:
        tools = os.path.join(folder, "bin")
        os.mkdir(tools)
        shutil.copy(binary, os.path.join(tools, "terrace"))
        with open(os.path.join(tools, "sudo"), "w") as file:
            file.write('#!/bin/sh\nexec "$@"\n')
        with open(os.path.join(tools, "nc"), "w") as file:
            file.write(NC)
        for tool in ("sudo", "nc"):
            os.chmod(os.path.join(tools, tool), 0o755)
        with open(os.path.join(folder, "memcached.conf"), "w") as file:
            file.write(MEMCACHED_CONF)
        setup = ["set -m -euo pipefail", f"export PATH={tools}:$PATH", "ip link set lo up"]
        # A copy of /etc that is the page's own, and empty folders.
        setup += ["cp -a /etc/. " + os.path.join(folder, "etc"), f"mount --bind {folder}/etc /etc"]
        setup += [f"cp {folder}/memcached.conf /etc/memcached.conf"]
        for path in FOLDERS:
            setup.append(f"mkdir -p {path} && mount -t tmpfs -o size=1g,mode=777 tmpfs {path}")
        setup += [f"mkdir {folder}/disk && mount --bind {folder}/disk /data"]
        if name == "README.md":
            # What `make run` starts.
            setup.append("terrace -u root -m 64 --tier ssd:/data/tier:256m -l 127.0.0.1 -p 11211 --state /run/terrace & sleep 1")
        os.mkdir(os.path.join(folder, "etc"))
        text = "\n".join(setup + ["set -x"] + lines) + "\n"
        unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        try:
            done = subprocess.run(
                [*unshare, "bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=PAGE_SECONDS
            )
            status, output = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            status, output = "no end", f"{late.stdout}{late.stderr}"
    print(f"{'ok' if status == 0 else 'FAILED'}: {name}: {len(lines)} lines", flush=True)
    if status != 0:
        print(f"status {status}\n{output}")
    return status == 0, len(left_out)


# Sends its input, and prints what comes back, until the other side closes.
NC = """#!/usr/bin/env python3
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
connection.sendall(sys.stdin.buffer.read())
connection.shutdown(socket.SHUT_WR)
while piece := connection.recv(65536):
    sys.stdout.buffer.write(piece)
"""


def main(binary):
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        print("skipped: the commands of the guide (this is not root, or unshare or ip is missing)")
        print("test result: ok. 1 passed; 0 failed; 0 ignored")
        return 0
    pages = [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "guide", "*.md")))]
    results = [run(page, binary) for page in pages]
    failed = sum(not is_right for is_right, _ in results)
    # Suites take what is skipped off the passed ones.
    passed = len(pages) - failed + sum(skipped for _, skipped in results)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(os.path.realpath(sys.argv[1])))
