"""Drawing: each Plot becomes an SVG whose ink takes the page's colours, so that it reads on light and on dark.

Plots are small (a phone's width) and stand beside each other on a wide page, so that their text is never scaled down.
"""

import io
import re
import textwrap

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402 (the back end is chosen before)
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter  # noqa: E402

WIDTH_IN, HEIGHT_IN = 3.9, 2.9
BAR_IN = 0.24
TITLE_LINE_MAX = 38
LEGEND_ROW_IN = 0.17
# Longer names than these do not fit beside each other.
LEGEND_NAME_MAX = 22
# Small whole numbers of things on an x axis are its ticks; more than so many would run into each other.
TICKS_MAX = 8
# Placeholders in the drawn SVG, replaced by the page's variables afterwards.
INK, LINE = "#010203", "#040506"

# Colours that stand apart on white and on black, also for colour-blind readers (after Okabe and Ito); Azekura's is red.
OURS_COLOUR = "#e0512f"
COLOURS = ["#2f86c8", "#2a9d74", "#c79100", "#b565a7", "#4fb3d9", "#8a8f98", "#a0703c", "#6f7bd9", "#7aa43a", "#d0709a"]
MARKERS = "osD^vPX<>h"
PUBLISHED_COLOURS = ["#8a8f98", "#b0a58c", "#7f9aa8", "#a48fa8", "#93a888", "#a89090"]

STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "figure.constrained_layout.use": True,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
}


class Palette:
    """A colour and a marker for each label, the same in every plot of a report."""

    def __init__(self, labels):
        self._looks = {}
        peers = published = 0
        for label in dict.fromkeys(labels):
            if label.startswith("published"):
                colour, marker = PUBLISHED_COLOURS[published % len(PUBLISHED_COLOURS)], "x"
                published += 1
            elif label == "Azekura":
                colour, marker = OURS_COLOUR, "o"
            else:
                colour, marker = COLOURS[peers % len(COLOURS)], MARKERS[peers % len(MARKERS)]
                peers += 1
            self._looks[label] = (colour, marker)

    def __getitem__(self, label):
        return self._looks[label]


def short(value, _position=None):
    """Axis labels: 1200 → 1.2k."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def draw(plot, palette):
    """The SVG of a Plot, to be put into a page that defines --ink and --line."""
    with plt.rc_context({**STYLE, "svg.hashsalt": plot.name}):
        drawn = _bars(plot, palette) if plot.kind == "bars" else _lines(plot, palette)
        drawn.axes[0].set_title("\n".join(textwrap.wrap(plot.title, TITLE_LINE_MAX)))
        out = io.StringIO()
        drawn.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(drawn)
    return _for_page(out.getvalue(), plot)


def standalone(svg):
    """The same as a file of its own: it brings the two variables along and follows the reader's light or dark."""
    style = (
        "<style>svg{--ink:#24292f;--line:#c9ced4}"
        "@media (prefers-color-scheme:dark){svg{--ink:#d7dde4;--line:#4a525c}}</style>"
    )
    return re.sub(r"(<svg\b[^>]*>)", lambda found: found[1] + style, svg, count=1) + "\n"


def _lines(plot, palette):
    shown = {label: points for label, points in plot.series.items() if points}
    names = _legend_names(shown)
    columns = 1 if len(names) < 2 or max(map(len, names.values())) > LEGEND_NAME_MAX else 2
    rows = -(-len(names) // columns)
    figure, axes = plt.subplots(figsize=(WIDTH_IN, HEIGHT_IN + LEGEND_ROW_IN * max(0, rows - 2)))
    for label, points in shown.items():
        colour, marker = palette[label]
        xs, ys = [point[0] for point in points], [point[1] for point in points]
        many = len(points) > 30
        axes.plot(
            xs,
            ys,
            color=colour,
            marker="" if many else marker,
            linestyle=_line_style(plot.kind, label),
            linewidth=2.2 if label == "Azekura" else 1.3,
            label=names[label],
            zorder=3 if label == "Azekura" else 2,
        )
        if all(len(point) == 4 for point in points) and any(point[2] != point[3] for point in points):
            axes.fill_between(xs, [p[2] for p in points], [p[3] for p in points], color=colour, alpha=0.16, linewidth=0)
    _scale(axes, plot)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    if plot.second_y:
        label, factor = plot.second_y
        right = axes.secondary_yaxis("right", functions=(lambda y: y * factor, lambda y: y / factor))
        right.set_ylabel(label)
        _label_y(right, axes.get_ylim(), plot.log_y)
        right.spines["right"].set_visible(False)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.45 / (HEIGHT_IN - 0.9)),
        ncol=columns,
        handlelength=1.8,
        columnspacing=1.0,
    )
    return figure


def _legend_names(series):
    """Labels as the legend has them: that all are published is said by the title alone."""
    prefix = "published: "
    if all(label.startswith(prefix) for label in series):
        return {label: label.removeprefix(prefix) for label in series}
    return {label: label for label in series}


def _line_style(kind, label):
    if kind == "dots":
        return "none"
    return "--" if label.startswith("published") else "-"


def _scale(axes, plot):
    xs = sorted({point[0] for points in plot.series.values() for point in points})
    if plot.log_x and xs and xs[0] > 0:
        axes.set_xscale("log", base=2)
        axes.set_xticks(xs)
        axes.xaxis.set_major_formatter(FuncFormatter(short))
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif len(xs) <= TICKS_MAX and all(x == int(x) for x in xs):
        axes.set_xticks(xs)
    if plot.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(6))
    _label_y(axes, axes.get_ylim(), plot.log_y)


def _label_y(axes, limits, log):
    """On a logarithmic axis of less than two powers of ten, the steps between them are labelled too."""
    axes.yaxis.set_major_formatter(FuncFormatter(short))
    if log:
        narrow = limits[1] < 30 * limits[0]
        axes.yaxis.set_minor_formatter(FuncFormatter(_short_step) if narrow else NullFormatter())


def _short_step(value, _position=None):
    """Labels for 2 and 5 times a power of ten."""
    digits = f"{value:e}"[:3]
    return short(value) if digits in ("2.0", "5.0") else ""


def _bars(plot, palette):
    labels = list(plot.series)[::-1]
    figure, axes = plt.subplots(figsize=(WIDTH_IN, 0.75 + BAR_IN * max(2, len(labels))))
    for position, label in enumerate(labels):
        middle, least, most = plot.series[label]
        axes.barh(position, middle, color=palette[label][0], height=0.72)
        if least != most:
            axes.errorbar(
                middle,
                position,
                xerr=[[middle - least], [most - middle]],
                color=INK,
                linewidth=0.9,
                capsize=2,
                fmt="none",
            )
        axes.annotate(
            f" {middle:,.0f}" if middle >= 10 else f" {middle:.2f}",
            (most, position),
            va="center",
            fontsize=8,
            color=INK,
        )
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(-0.6, max(2, len(labels)) - 0.4)
    axes.set_xlim(right=1.18 * max((bar[2] for bar in plot.series.values()), default=1))
    axes.xaxis.set_major_formatter(FuncFormatter(short))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(plot.y)
    return figure


def _for_page(svg, plot):
    """Without the XML head, with identifiers of its own, ink and lines as variables of the page, a text for readers."""
    svg = svg[svg.index("<svg") :].strip()
    svg = svg.replace(INK, "var(--ink)").replace(LINE, "var(--line)")
    # A hundredth of a point is finer than any screen; matplotlib's six digits double the file.
    svg = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", svg)
    svg = re.sub(r"\n\s*", " ", svg)
    prefix = re.sub(r"[^a-z0-9]+", "-", plot.name.lower())
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    label = f"{plot.title}: {plot.y} of {', '.join(plot.series)}".replace("&", "&amp;").replace('"', "&quot;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label.replace("<", "&lt;")}" ', 1)
