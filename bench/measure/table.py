"""Figures as text."""


def mib(count):
    return f"{count / (1 << 20):.1f} MiB"


def ratio(part, whole):
    return part / whole if whole else float("nan")


def percent(part, whole):
    return f"{100 * ratio(part, whole):.1f} %"


def show(rows):
    """Prints rows of words in columns, the first row as the heading."""
    widths = [max(len(str(row[at])) for row in rows) for at in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [str(cell).ljust(width) for cell, width in zip(row, widths)]
        print("  ".join(cells).rstrip(), flush=True)
        if number == 0:
            print("  ".join("-" * width for width in widths), flush=True)
