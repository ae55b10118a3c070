"""How all figures look: one colour per system, a grid, axes with their units, ticks at 1, 2 and 5 times
powers of ten, and legends beside the curves, not over them.
"""

import itertools
import math
import sys
import textwrap

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.text import Text  # noqa: E402
from matplotlib.ticker import AutoLocator, FixedLocator, LogLocator, MaxNLocator, NullLocator  # noqa: E402

COLOURS = {
    "Terrace": "#1b6ca8",
    "memcached (DRAM)": "#d1495b",
    "extstore": "#e1a100",
    "fio": "#555555",
    "RocksDB": "#2e8b57",
    "LevelDB": "#7b5ea7",
}
_OTHERS = ["#1b6ca8", "#d1495b", "#2e8b57", "#e1a100", "#7b5ea7", "#555555"]
MARKERS = "osD^vP"
# Ticks of an axis that doubles, at most.
_DOUBLED_MAX = 8
# Over fewer powers of ten there are ticks at 2 and 5 times these, too.
_DECADES_FINE = 3
# A legend's sample with the room around it, a letter of it, and one of a title.
_SAMPLE_INCHES = 0.6
_LETTER_INCHES = 0.065
_TITLE_LETTER_INCHES = 0.1

plt.rcParams.update(
    {
        # Text stays text, and the same measurements give the same file.
        "svg.fonttype": "none",
        "svg.hashsalt": "terrace",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }
)


def colour(name, at=0):
    """The colour of a system; others have one by their place."""
    return COLOURS.get(name, _OTHERS[at % len(_OTHERS)])


def style(name, seen):
    """Of a line named `SYSTEM, LOAD`: the colour says the system, the dashes the load."""
    system, _, load = name.partition(", ")
    loads = seen.setdefault(system, [])
    if load not in loads:
        loads.append(load)
    dashes = ["-", "--", ":", "-."][loads.index(load) % 4]
    return {"color": COLOURS.get(system, "#555555"), "linestyle": dashes}


def _wrapped(title, width):
    return textwrap.fill(title, int(width / _TITLE_LETTER_INCHES))


def panels(titles, width=5.0, height=3.8):
    """A figure with one pair of axes per title, side by side."""
    figure, axes = plt.subplots(
        1, len(titles), figsize=(width * len(titles), height), squeeze=False
    )
    for panel, title in zip(axes[0], titles):
        panel.set_title(_wrapped(title, width))
    return figure, list(axes[0])


def grid(titles, width=5.0, height=3.4):
    """A figure with a row of axes for each list of titles."""
    columns = max(len(row) for row in titles)
    size = (width * columns, height * len(titles))
    figure, axes = plt.subplots(len(titles), columns, figsize=size, squeeze=False)
    for row, names in zip(axes, titles):
        for panel, title in zip(row, names):
            panel.set_title(_wrapped(title, width))
    return figure, [list(row) for row in axes]


def curves(panel, lines, x, y, x_scale="linear", y_scale="linear", zero=True, styles=False):
    """`lines` are pairs of a name and its points; nothing is drawn between points that lack. With
    `styles` names are `SYSTEM, LOAD`."""
    seen = {}
    for at, (name, points) in enumerate(lines):
        if points:
            xs, ys = zip(*points)
            how = style(name, seen) if styles else {"color": colour(name, at)}
            panel.plot(xs, ys, marker=MARKERS[at % len(MARKERS)], label=name, **how)
    _axes(panel, x, y)
    if x_scale == "log":
        # Sizes and numbers of clients double.
        panel.set_xscale("log", base=2)
        ticks = sorted({point[0] for _, points in lines for point in points})
        ticks = ticks[:: math.ceil(len(ticks) / _DOUBLED_MAX)]
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.tick_params(axis="x", which="minor", bottom=False)
    panel.set_yscale(y_scale)
    if zero and y_scale == "linear":
        panel.set_ylim(bottom=0)
    if zero and x_scale == "linear":
        panel.set_xlim(left=0)


def bars(panel, groups, lines, x, y):
    """One bar per name in `lines` (name, values) for each group; `None` leaves a gap."""
    width = 0.8 / max(len(lines), 1)
    for at, (name, values) in enumerate(lines):
        places = [place + (at - (len(lines) - 1) / 2) * width for place in range(len(groups))]
        shown = [(place, value) for place, value in zip(places, values) if value is not None]
        drawn = panel.bar(
            [place for place, _ in shown],
            [value for _, value in shown],
            width * 0.92,
            label=name,
            color=colour(name, at),
        )
        panel.bar_label(drawn, fmt=_short, fontsize=7, padding=1)
    panel.set_xticks(range(len(groups)), groups)
    panel.grid(axis="x", visible=False)
    _axes(panel, x, y)


def _axes(panel, x, y):
    panel.set_xlabel(x)
    panel.set_ylabel(y)


def _short(value):
    """A number with a letter for thousands and millions."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.3g}"


def _round(axis):
    """Puts ticks at round numbers, and the axis' ends at such. Ticks that were set stay."""
    locator, (low, high) = axis.get_major_locator(), sorted(axis.get_view_interval())
    if isinstance(locator, LogLocator):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        fine = [times * 10.0**power for power in powers for times in (1, 2, 5)]
        ticks = [10.0**power for power in powers]
        ticks = _between(fine, low, high) if len(powers) <= _DECADES_FINE else ticks
    elif isinstance(locator, AutoLocator):
        ticks = MaxNLocator(nbins=7, steps=[1, 2, 5, 10]).tick_values(low, high)
        ticks = _between(ticks, low, high)
    else:
        return
    axis.set_view_interval(ticks[0], ticks[-1], ignore=True)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: _short(value))


def _between(ticks, low, high):
    """From the last that is not above `low` to the first that is not below `high`."""
    slack = (high - low) * 1e-6
    first = max((at for at, tick in enumerate(ticks) if tick <= low + slack), default=0)
    last = min((at for at, tick in enumerate(ticks) if tick >= high - slack), default=len(ticks) - 1)
    return list(ticks[first : last + 1])


def _legends(figure):
    """One for all panels where one names the curves of the others too, above them; else one below each."""
    named = []
    for panel in figure.axes:
        handles, names = panel.get_legend_handles_labels()
        named += [(panel, dict(zip(names, handles)))] if names else []
    if not named or figure.legends:
        return
    width, _ = figure.get_size_inches()
    most = max((names for _, names in named), key=len)
    if all(names.keys() <= most.keys() for _, names in named):
        columns = _columns(most, width)
        figure.legend(most.values(), most.keys(), loc="outside upper center", ncols=columns, fontsize=8)
        return
    for panel, names in named:
        columns = _columns(names, width / panel.get_subplotspec().get_gridspec().ncols)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
        panel.legend(names.values(), names.keys(), ncols=columns, fontsize=8, **place)


def _columns(names, width):
    widest = _SAMPLE_INCHES + max(len(name) for name in names) * _LETTER_INCHES
    return max(1, min(len(names), int(width / widest)))


def _overlaps(figure):
    """Texts that are over others, or leave the figure, as sentences."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in texts]
    for (one, box), (other, beside) in itertools.combinations(boxes, 2):
        if box.overlaps(beside):
            yield f"{one!r} is over {other!r}"
    width, height = figure.bbox.size
    for text, box in boxes:
        if min(box.x0, box.y0, width - box.x1, height - box.y1) < 0:
            yield f"{text!r} is cut"


def save(figure, path):
    """Writes the SVG; no date, so that it changes with the measurements only."""
    for panel in figure.axes:
        _round(panel.xaxis)
        _round(panel.yaxis)
    _legends(figure)
    figure.savefig(path, metadata={"Date": None})
    for fault in _overlaps(figure):
        print(f"{path}: {fault}", file=sys.stderr)
    plt.close(figure)
