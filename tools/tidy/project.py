"""The files that belong to the project, and the list of what is excused."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXCUSES = Path(__file__).with_name("excuses.txt")


@dataclass(frozen=True)
class Finding:
    """A line of the project that breaks a rule. `line` is 0 where the file as a whole does."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self):
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.text} [{self.rule}]"


# What is in the project's folder and not of the project, where git can't be asked.
NOT_OURS = {".git", "target", ".azekura", ".lab", ".torment", ".pytest_cache", "__pycache__"}


def git(root, *words):
    """What a git command prints; None where there is no git, or no repository (an unpacked archive)."""
    # A build machine may have cloned as another user.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None


def tracked(root=ROOT):
    """The paths of the project's files, relative to its root: those that git knows, and new ones."""
    root = Path(root)
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    if listed is None:
        below = (file.relative_to(root) for file in root.rglob("*"))
        listed = "\n".join(str(path) for path in below if not NOT_OURS & set(path.parts))
    return sorted(path for path in set(listed.splitlines()) if (root / path).is_file())


# What can be excused.
KINDS = ("file", "function", "fields", "circle")


class BadExcuse(Exception):
    """A line of the list of excuses that can't be read."""


class Excuses:
    """What is allowed to be longer or more than the rules want, up to which number, and why.

    Each line is `KIND NAME NUMBER REASON…`: `file PATH LINES`, `function PATH::NAME LINES`, `fields PATH::TYPE FIELDS`,
    or `circle CRATE FILES`. An excuse that is not needed any
    more, or that allows more than is there, is a finding: so lengths can only go down.
    """

    def __init__(self, text):
        self.limits, self.lines, self.used = {}, {}, {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split(maxsplit=3)
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 4 or words[0] not in KINDS or not words[2].isdigit():
                raise BadExcuse(f"{EXCUSES.name}:{number}: wanted: {'|'.join(KINDS)} NAME NUMBER REASON, not: {line}")
            self.limits[words[0], words[1]] = int(words[2])
            self.lines[words[0], words[1]] = number

    def allows(self, kind, name, length):
        """Whether something of this length is excused."""
        if (kind, name) not in self.limits:
            return False
        self.used[kind, name] = max(length, self.used.get((kind, name), 0))
        return length <= self.limits[kind, name]

    def stale(self):
        """Findings about excuses that allow more than is needed."""
        path = "tools/tidy/" + EXCUSES.name
        for key, limit in self.limits.items():
            kind, name = key
            if key not in self.used:
                yield Finding(path, self.lines[key], "excuses", f"the {kind} {name} needs no excuse: delete the line")
            elif self.used[key] < limit:
                yield Finding(path, self.lines[key], "excuses", f"{name}: {self.used[key]} now, not {limit}")
