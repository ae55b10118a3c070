"""Measures Terrace beside its peers and draws docs/figures.

`bench/figures/run` does all figures in about 25 minutes, `--quick` a small version in about six,
`bench/figures/run NAME...` some of them. What was measured is kept after each figure: one that fails
costs only itself, and `--resume` measures only what is missing.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
ROOT = os.path.dirname(BENCH)
sys.path.insert(0, BENCH)

from figures import amplification, etc, items, latency, media, page, uniform, zipf  # noqa: E402
from measure.figure import say  # noqa: E402
from measure.server import end_servers_when_terminated  # noqa: E402

SCENARIOS = {
    "uniform": uniform,
    "zipf": zipf,
    "etc": etc,
    "items": items,
    "latency": latency,
    "media": media,
    "amplification": amplification,
}
# A figure that takes longer hangs.
FIGURE_SECONDS_MAX = 1200


def build():
    packages = ["--package", "terrace-load", "--package", "terrace-probe"]
    if "TERRACE_BENCH_SERVER" not in os.environ:
        packages += ["--package", "terrace"]
    manifest = os.path.join(ROOT, "Cargo.toml")
    command = ["cargo", "build", "--quiet", "--release", "--manifest-path", manifest, *packages]
    subprocess.run(command, check=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--quick", action="store_true", help="less of everything; not for quoting")
    parser.add_argument(
        "--resume", action="store_true", help="leave out what was measured in full within a day"
    )
    parser.add_argument("--draw", action="store_true", help="only draw what was measured last")
    parser.add_argument("--docs", default=os.path.join(ROOT, "docs"), help="where to write")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no figure {unknown[0]}; there are {', '.join(SCENARIOS)}")
    folder = os.path.join(arguments.docs, "figures")
    os.makedirs(folder, exist_ok=True)
    kept = os.path.join(folder, "data.json")
    data = {}
    if os.path.exists(kept):
        with open(kept) as file:
            data = json.load(file)
    failed = [] if arguments.draw else measure(arguments, data, kept)
    for name in arguments.names or SCENARIOS:
        if name in data:
            SCENARIOS[name].draw(data[name]["found"], os.path.join(folder, f"{name}.svg"))
    if data:
        page.write(os.path.join(arguments.docs, "figures.md"), SCENARIOS, data)
    if failed:
        print(f"not measured: {', '.join(failed)}; --resume tries them again", file=sys.stderr)
    return 1 if failed else 0


def measure(arguments, data, kept):
    """Adds to `data` figure by figure, and keeps it; gives back the names of those that failed."""
    build()
    end_servers_when_terminated()
    signal.signal(signal.SIGALRM, _took_too_long)
    failed, begun = [], time.monotonic()
    for name in arguments.names or SCENARIOS:
        if arguments.resume and page.is_fresh(data.get(name)):
            print(f"== {name}: measured already", file=sys.stderr, flush=True)
            continue
        print(f"== {name}", file=sys.stderr, flush=True)
        start, conditions = time.monotonic(), page.conditions(arguments.quick)
        signal.alarm(FIGURE_SECONDS_MAX)
        try:
            found = SCENARIOS[name].measure(arguments.quick)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        finally:
            signal.alarm(0)
            seconds = round(time.monotonic() - start)
            say(f"{name}: {seconds} s; {round(time.monotonic() - begun)} s in all")
        data[name] = {"conditions": conditions, "seconds": seconds, "found": _rounded(found)}
        # A run that is killed while it writes leaves what was there before.
        with open(kept + ".new", "w") as file:
            json.dump(data, file, indent=1)
        os.replace(kept + ".new", kept)
    return failed


def _took_too_long(*_):
    raise TimeoutError(f"a figure took longer than {FIGURE_SECONDS_MAX} s")


def _rounded(value):
    """Four digits are more than was measured."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
