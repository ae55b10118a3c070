#!/usr/bin/env python3
"""Runs the tests that frameworks have of their memcached backends against a server.

suites.py BINARY django|dogpile.cache|cachelib

Packages and the sources with the tests come from PyPI when they are first asked for, into .cache/suites; nothing of
them is part of the tree. Most of these tests wait for something to expire, so that they are run many at once, each
class of them against a server of its own. Exit code 77: not installed.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parents[2] / ".cache" / "suites"
PYTHON = CACHE / "venv" / "bin" / "python"
REQUIREMENTS = HERE / "requirements.txt"
NOT_INSTALLED = 77
AT_ONCE = 12
SECONDS_MAX = 240

DJANGO = """
SECRET_KEY = "of a test"
USE_TZ = False
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = {{name: {{"ENGINE": "django.db.backends.sqlite3"}} for name in ("default", "other")}}
CACHES = {{
    "default": {{"BACKEND": "django.core.cache.backends.memcached.{backend}", "LOCATION": "{address}"}},
}}
"""


def version(package):
    line = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(f"{package}=="))
    return line.split("==")[1]


def source(package):
    return CACHE / "sources" / f"{package.replace('.', '_')}-{version(package)}"


def pip(*words):
    """Again where the network fails."""
    command = [PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    return any(subprocess.run(command, check=False).returncode == 0 for _ in range(2))


def install(package):
    """The environment, and the source of the package. One process at a time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = CACHE / "installed.txt"
        if not installed.exists() or installed.read_text() != REQUIREMENTS.read_text():
            shutil.rmtree(CACHE / "venv", ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
            if not pip("install", "-r", REQUIREMENTS):
                return False
            shutil.copy(REQUIREMENTS, installed)
        if source(package).exists():
            return True
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            what = f"{package}=={version(package)}"
            # What builds it is installed already; in an environment of its own that takes a minute.
            words = ["download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", folder, what]
            if not pip(*words):
                return False
            (archive,) = pathlib.Path(folder).glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
            source(package).parent.mkdir(exist_ok=True)
            os.rename(pathlib.Path(folder) / source(package).name, source(package))
        return True


@contextlib.contextmanager
def server(binary):
    """Its address."""
    # A port that this program looked for could be another server's by then.
    command = [binary, "-u", "root", "-l", "127.0.0.1", "-p", "-1", "-m", "64", "-t", "1"]
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder) / "ports"
        environment = os.environ | {"MEMCACHED_PORT_FILENAME": str(told)}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        try:
            until = time.monotonic() + 20
            while not (told.exists() and (found := re.search(r"TCP INET: (\d+)", told.read_text()))):
                if time.monotonic() > until or process.poll() is not None:
                    sys.exit(f"{command} does not serve")
                time.sleep(0.05)
            yield f"127.0.0.1:{found[1]}"
            if process.poll() is not None:
                sys.exit(f"{command} ended with {process.returncode}")
        finally:
            process.terminate()
            process.wait()


def run(words, folder, **variables):
    """The tests that passed and were skipped, and what was printed where some failed."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | variables
    told = subprocess.run(
        [PYTHON, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=SECONDS_MAX,
    )
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", told.stdout)}
    ran = re.search(r"^Ran (\d+) tests?", told.stdout, re.MULTILINE)
    if ran:
        skipped = int(dict(re.findall(r"(skipped)=(\d+)", told.stdout)).get("skipped", 0))
        counts = {"passed": int(ran[1]) - skipped, "skipped": skipped}
    return counts.get("passed", 0), counts.get("skipped", 0), told.stdout if told.returncode else ""


def django(binary):
    """The tests of both backends, and all others of caches, most of which ask no server."""
    folder = source("django") / "tests"

    def part(backend, *labels):
        with server(binary) as address:
            settings = f"settings_{backend.lower()}_{len(labels[0])}"
            (folder / f"{settings}.py").write_text(DJANGO.format(backend=backend, address=address))
            words = ["runtests.py", f"--settings={settings}", "--parallel=1", "--shuffle=1"]
            return run([*words, *labels], folder)

    backends = ["PyMemcacheCache", "PyLibMCCache"]
    parts = [(backend, f"cache.tests.{backend}Tests") for backend in backends]
    # Whatever uses the default cache.
    others = [
        "CacheUtils", "CacheHEADTest", "CacheI18nTest", "PrefixedCacheI18nTest", "CacheMiddlewareTest",
        "TestWithTemplateResponse", "TestMakeTemplateFragmentKey", "CacheHandlerTest",
    ]
    labels = [f"cache.tests.{name}" for name in others]
    return [lambda words=words: part(*words) for words in [*parts, *((backend, *labels) for backend in backends)]]


def dogpile(binary):
    """Each class."""
    folder, file = source("dogpile.cache"), "tests/cache/test_memcached_backend.py"

    def part(name):
        with server(binary) as address:
            port = address.rsplit(":", 1)[1]
            words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"{file}::{name}"]
            return run(words, folder, DOGPILE_MEMCACHED_PORT=port)

    text = (folder / file).read_text()
    # Those of TLS want a server with certificates of their own.
    names = [name for name in re.findall(r"^class ([A-Z]\w*Test)\b", text, re.MULTILINE) if "TLS" not in name]
    return [lambda name=name: part(name) for name in names]


def cachelib(binary):
    """With the port of the server in place of the one that stands in them."""
    folder = source("cachelib")

    def part():
        with server(binary) as address:
            text = (folder / "tests/test_memcached_cache.py").read_text()
            copy = folder / "tests/test_memcached_here.py"
            copy.write_text(text.replace("127.0.0.1:11212", address))
            return run(["-m", "pytest", "-q", copy], folder, CI="true")

    return [part]


SUITES = {"django": django, "dogpile.cache": dogpile, "cachelib": cachelib}


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in SUITES:
        sys.exit(__doc__)
    binary, package = sys.argv[1:]
    if not install(package):
        print(f"{package}: can't be had from PyPI")
        sys.exit(NOT_INSTALLED)
    parts = SUITES[package](binary)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda part: part(), parts))
    # Some hold a lock for a second, which others get where this machine is slow: once more, alone.
    results = [part() if result[2] else result for part, result in zip(parts, results)]
    passed, skipped = (sum(result[at] for result in results) for at in (0, 1))
    failures = [result[2] for result in results if result[2]]
    print("\n".join(failures))
    print(f"{package} {version(package)}: {passed} passed, {skipped} skipped, {len(failures)} parts failed")
    sys.exit(1 if failures or passed == 0 else 0)


main()
