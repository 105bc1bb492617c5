"""The interface of an experiment: what it runs, and what its section of the report shows.

An experiment is one file in this folder with one class. `steps` turns a plan's settings into measurements; `section`
turns what was measured into tables and plots; nothing else of the lab knows what the experiment is about.
"""

from dataclasses import dataclass, field


@dataclass
class Table:
    """Cells are text as it is to be shown; the first column names the row. `prose`: words, not figures."""

    title: str
    head: list
    rows: list
    note: str = ""
    prose: bool = False


@dataclass
class Plot:
    """A figure, without saying how it is drawn.

    `kind` is "lines" (series: label → [(x, y)] or [(x, y, least, most)]), "bars" (label → (y, least, most)) or
    "dots" (label → [(x, y)], no line between them). A label that starts with "published" is drawn as published.
    """

    name: str
    title: str
    kind: str
    series: dict
    x: str = ""
    y: str = ""
    log_x: bool = False
    log_y: bool = False
    # A second y axis: (its label, its value for a y of 1).
    second_y: tuple | None = None
    # Plots that follow each other with the same group stand together under it.
    group: str = ""


@dataclass
class Section:
    """What the report shows of an experiment beside its question and method."""

    conditions: str = ""
    published: list = field(default_factory=list)
    measured: list = field(default_factory=list)
    plots: list = field(default_factory=list)
    # Sentences on where Azekura is slower than another, and on what was not comparable.
    losses: list = field(default_factory=list)
    not_comparable: list = field(default_factory=list)


def rounds(settings):
    """(round number, targets in turn): every other round goes backwards, so that a slow quarter of an hour of the
    machine does not hit one target alone."""
    for number in range(1, settings["rounds"] + 1):
        yield number, settings["targets"] if number % 2 else settings["targets"][::-1]


class Experiment:
    """A published study that the lab repeats."""

    name = ""
    title = ""
    source = ""
    question = ""
    method = ""
    # What the study found, in a sentence or two.
    found = ""

    def steps(self, settings):
        """All steps in the order in which they run; steps that share a started target follow each other."""
        raise NotImplementedError

    def told(self, data):
        """One step's result in a few words, for the progress lines."""
        raise NotImplementedError

    def section(self, lines, settings, published):
        """The Section for the results' lines of this experiment (see results.Results.steps)."""
        raise NotImplementedError
