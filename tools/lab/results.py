"""Results as JSON lines: one line a session (machine, versions, plan), a setup (commands), a step (what it measured).

A line is written whole and flushed, so that a run that is cut off loses at most the step under way; a torn last line is
skipped on reading. A step is found again by its key and the fingerprint of its experiment's settings: after a change of
the plan nothing old passes for new.
"""

import hashlib
import json
from pathlib import Path
from statistics import median

FORMAT = 1


def fingerprint(settings):
    """Eight hexadecimal digits that change with the settings, but not with the choice of targets."""
    kept = {name: value for name, value in settings.items() if name not in ("targets", "rounds")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


class Results:
    """The lines of one file."""

    def __init__(self, path):
        self.path = Path(path)
        self.lines = []
        if self.path.exists():
            self.lines = list(_decode(self.path.read_text()))

    def append(self, line):
        self.lines.append(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and self.path.stat().st_size > 0 and not self._ends_with_newline()
        with open(self.path, "a") as file:
            file.write(("\n" if torn else "") + json.dumps(line, separators=(",", ":")) + "\n")

    def _ends_with_newline(self):
        with open(self.path, "rb") as file:
            file.seek(-1, 2)
            return file.read(1) == b"\n"

    def sessions(self):
        return [line for line in self.lines if line["kind"] == "session"]

    def setups(self):
        return [line for line in self.lines if line["kind"] == "setup"]

    def steps(self, experiment, mark=None):
        """The last line of each step of an experiment, in the order of their first measurement."""
        last = {}
        for line in self.lines:
            if line["kind"] == "step" and line["experiment"] == experiment and mark in (None, line["mark"]):
                last[line["key"]] = line
        return list(last.values())

    def done(self, experiment, mark):
        """Keys of the steps that need not run again: measured, or known not to be possible."""
        return {line["key"] for line in self.steps(experiment, mark) if "failed" not in line}


def _decode(text):
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError:
            # Only a line that a cut-off run left half written may be broken; the run after it began a new line.
            if not line.startswith("{") or line.endswith("}"):
                raise ValueError(f"line {number} is not a result: {line[:80]!r}") from None


class Spread:
    """The values of one measurement over the rounds: shown as median with least and most."""

    def __init__(self, values):
        self.values = sorted(values)

    @property
    def median(self):
        return median(self.values)

    @property
    def least(self):
        return self.values[0]

    @property
    def most(self):
        return self.values[-1]

    def __len__(self):
        return len(self.values)


def spreads(lines, value):
    """(target label, test) → Spread of `value(data)` over the rounds; steps without data or value are left out."""
    found = {}
    for line in lines:
        measured = value(line["data"]) if "data" in line else None
        if measured is not None:
            found.setdefault((line["label"], line["test"]), []).append(measured)
    return {key: Spread(values) for key, values in found.items()}
