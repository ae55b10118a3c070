"""The hit ratio through the failure of a node and its return, as SVG."""

from figures import plot

NAMES = {"terrace": "Terrace", "memcached": "memcached (DRAM)"}
TITLES = {"twemproxy": "twemproxy", "hashclient": "pymemcache's HashClient", "ketama": "libmemcached's ketama"}  # fmt: skip


def draw(outcomes, path):
    """`outcomes` by kind of server and ring; one panel per ring."""
    rings = list(dict.fromkeys(ring for _, ring in outcomes))
    drawing, panels = plot.panels([TITLES[ring] for ring in rings], width=4.2, height=3.2)
    for ring, panel in zip(rings, panels):
        lines = []
        for kind in ("memcached", "terrace"):
            if seen := outcomes.get((kind, ring)):
                lines.append((NAMES[kind], [*_points(seen)]))
        plot.curves(panel, lines, "seconds since the node was killed", "share of reads that hit", zero=False)  # fmt: skip
        seen = outcomes.get(("terrace", ring)) or outcomes[("memcached", ring)]
        back = seen.back_at - seen.killed_at
        for at, text, dashes in ((0, "node killed", "--"), (back, "node back", ":")):
            panel.axvline(at, color="#555555", linestyle=dashes, linewidth=1, label=text)
        panel.set_ylim(0.6, 1.02)
    plot.save(drawing, path)


def _points(seen):
    for when, ratio in seen.windows:
        yield round(when - seen.killed_at, 2), round(ratio, 4)
