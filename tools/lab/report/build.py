"""Puts the report together from the results."""

import itertools
from pathlib import Path

import jinja2
import yaml

from tools.lab import experiments, targets
from tools.lab.results import fingerprint

from .plots import Palette, draw, standalone

HERE = Path(__file__).parent
# A machine that is more loaded before a run has other work; its figures are not to be quoted, and the report says so.
BUSY_LOAD = 0.5
PUBLISHED = HERE.parent / "published.yaml"


def write(kept, folder, note=None):
    """Writes index.html, report.md and plots/*.svg for `kept` (a Results) into the folder; the paths written.

    `note` is a sentence of whoever measured, for the reader."""
    sections = _sections(kept)
    palette = Palette(label for _, section in sections for plot in section.plots for label in plot.series)
    drawn = {plot.name: draw(plot, palette) for _, section in sections for plot in section.plots if plot.series}
    folder = Path(folder)
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    for old in (folder / "plots").glob("*.svg"):
        old.unlink()
    for name, svg in drawn.items():
        (folder / "plots" / f"{name}.svg").write_text(standalone(svg))
    shown = {"sections": sections, "drawn": drawn, "about": {**_about(kept), "note": note}, "targets": _targets(kept)}
    environment = _environment()
    written = []
    for template, name in (("page.html.j2", "index.html"), ("page.md.j2", "report.md")):
        path = folder / name
        path.write_text(environment.get_template(template).render(shown))
        written.append(path)
    return written


def _environment():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["markdown_cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    environment.filters["groups"] = _groups
    return environment


def _groups(plots):
    """[(group, its plots)] of plots that follow each other in one group."""
    return [(group, list(found)) for group, found in itertools.groupby(plots, key=lambda plot: plot.group)]


def _sections(kept):
    """[(experiment, Section)] of the experiments that have results."""
    published = yaml.safe_load(PUBLISHED.read_text())
    found = []
    for name, experiment in experiments.known().items():
        lines = kept.steps(name)
        if lines:
            # Only what the last settings measured: two lengths of test do not belong into one table.
            mark = lines[-1]["mark"]
            lines = [line for line in lines if line["mark"] == mark]
            settings = {**_settings(kept, name, mark), "rounds": _rounds(lines)}
            found.append((experiment, experiment.section(lines, settings, published[name])))
    return found


def _settings(kept, name, mark):
    """The settings that an experiment was last run with."""
    for session in reversed(kept.sessions()):
        settings = session["settings"].get(name)
        if settings and fingerprint(settings) == mark:
            return settings
    raise ValueError(f"no session of the results ran {name} with these settings")


def _rounds(lines):
    """How often it was measured: a number, or two when some steps have more rounds than others."""
    counts = {}
    for line in lines:
        if "data" in line:
            key = (line["part"], line["label"], line["test"])
            counts[key] = counts.get(key, 0) + 1
    least, most = min(counts.values(), default=0), max(counts.values(), default=0)
    return str(most) if least == most else f"{least} to {most}"


def _about(kept):
    """Machine, versions, times and load over all sessions; a reader judges the figures by them."""
    sessions = kept.sessions()
    loads = [line["load"] for line in kept.lines if line["kind"] == "step"]
    last = sessions[-1]
    busy = [load for load in (session["machine"]["load_before"] for session in sessions) if load > BUSY_LOAD]
    return {
        "busy": max(busy, default=None),
        "began": sessions[0]["began"],
        "ended": max(line["began"] for line in kept.lines),
        "sessions": len(sessions),
        "plan": last["plan"],
        "plan_about": last["about"],
        "machine": last["machine"],
        "versions": last["versions"],
        "load_before": [session["machine"]["load_before"] for session in sessions],
        "load_most": max(loads, default=0.0),
    }


def _targets(kept):
    """(title, what it is, versions) of each target that was started, by its base name."""
    known = targets.known()
    found = {}
    for setup in kept.setups():
        kind, _ = known.get(setup["target"], (None, None))
        if kind is not None:
            versions = ", ".join(f"{name} {version}" for name, version in setup["versions"].items())
            found[kind.title] = (kind.about, versions)
    return [(title, *rest) for title, rest in found.items()]
