"""How often this machine stops a program that only looks at the clock: what runs on it is stopped as often."""

from measure import stall
from measure.figure import Figure, median, say
from rows.speed_dram import LOAD_CPU, SERVER_CPU


def stalls(quick):
    """With one of the cores of server and generator busy, and with both, by turns."""
    rounds, seconds = (3, 1) if quick else (5, 2)
    both = SERVER_CPU | LOAD_CPU
    gap = f"{stall.GAP_NS / 1e6} ms"
    say(f"percent of the time in gaps of more than {gap}: each core alone, and both at once")
    alone, together = [], []
    for _ in range(rounds):
        alone += [share for cpu in both for share in _stopped({cpu}, seconds)]
        together += _stopped(both, seconds)
        say(", ".join(f"{share:.2f}" for share in alone[-len(both) :] + together[-len(both) :]))
    text = lambda shares: f"{median(shares):.2f} % (most {max(shares):.2f} %)"
    what = f"time that a busy core stands still for more than {gap} at once"
    return [
        Figure(f"{what}, no other busy", text(alone)),
        Figure(f"{what}, both busy", text(together)),
    ]


def _stopped(cpus, seconds):
    """Of programs that only look at the clock, one on each core."""
    running = [stall.start(cpu, seconds) for cpu in sorted(cpus)]
    return [float(program.communicate()[0]) for program in running]
