"""How all figures look: one colour per system, a grid, axes with their units."""

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {
    "Terrace": "#1b6ca8",
    "memcached (DRAM)": "#d1495b",
    "extstore": "#e1a100",
    "RocksDB": "#2e8b57",
    "LevelDB": "#7b5ea7",
}
_OTHERS = ["#1b6ca8", "#d1495b", "#2e8b57", "#e1a100", "#7b5ea7", "#555555"]
MARKERS = "osD^vP"

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


def panels(titles, width=5.0, height=3.8):
    """A figure with one pair of axes per title, side by side."""
    figure, axes = plt.subplots(
        1, len(titles), figsize=(width * len(titles), height), squeeze=False
    )
    for panel, title in zip(axes[0], titles):
        panel.set_title(title)
    return figure, list(axes[0])


def grid(titles, width=5.0, height=3.4):
    """A figure with a row of axes for each list of titles."""
    columns = max(len(row) for row in titles)
    size = (width * columns, height * len(titles))
    figure, axes = plt.subplots(len(titles), columns, figsize=size, squeeze=False)
    for row, names in zip(axes, titles):
        for panel, title in zip(row, names):
            panel.set_title(title)
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
    # Room for the legend.
    panel.margins(y=0.25)
    panel.grid(axis="x", visible=False)
    _axes(panel, x, y)


def _axes(panel, x, y):
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    if panel.get_legend_handles_labels()[1]:
        panel.legend(fontsize=8)


def _short(value):
    if value >= 1000:
        return f"{value / 1000:.0f}k"
    return f"{value:.3g}"


def save(figure, path):
    """Writes the SVG; no date, so that it changes with the measurements only."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
