"""Instructions outside the kernel per operation, beside memcached and the floor: the figure that a busy
machine does not change."""

from measure import instructions
from measure.figure import Figure, at_most, say
from measure.examples import build_examples, example
from measure.server import memcached_binary, terrace_binary
from rows.speed_dram import OF_MEMCACHED

ALONE = ["-m", "64", "-t", "1", "-l", "127.0.0.1", "-p", "-1", "-u", "root"]
# memcached's other threads work on their own account; only the one that serves is counted.
DEPTHS = [1, 8, 32]


def per_operation(quick):
    """Depth 1 has what must be, since time scatters too much there to tell; at others it is time that must."""
    if not instructions.available():
        return [Figure("instructions per operation", "skipped: valgrind is not installed")]
    build_examples()
    depths = DEPTHS[::2] if quick else DEPTHS
    cells = [(kind, depth) for kind in instructions.KINDS for depth in depths]
    say("instructions of terrace, memcached and the floor")
    own = instructions.count([terrace_binary(), *ALONE, "-c", "512"], cells)
    other = instructions.count([memcached_binary(), *ALONE, "-R", "1000"], cells)
    # Its answers to classic requests name a key of their own, which the count would not accept.
    floor = instructions.count(
        [example("floor"), "127.0.0.1:0", str(instructions.VALUE_BYTES), "meta"],
        [("GET, meta", depth) for depth in depths],
        fills=False,
    )
    figures = []
    for kind, depth in cells:
        ratio = own[kind, depth] / other[kind, depth]
        note = f"{own[kind, depth]:,.0f} and {other[kind, depth]:,.0f}"
        if (kind, depth) in floor:
            note += f"; the floor {floor[kind, depth]:,.0f}"
        what = f"instructions outside the kernel per {kind}, depth {depth}, of memcached's"
        limit = OF_MEMCACHED["write" if "SET" in kind else "read"][depth]
        if depth == 1:
            figures.append(at_most(what, ratio, limit, "{:.2f}", note))
        else:
            figures.append(Figure(what, f"{ratio:.2f} ({note})"))
    return figures
