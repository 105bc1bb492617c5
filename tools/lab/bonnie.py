"""Running bonnie++ and reading the line of figures that it prints."""

import subprocess
import threading
import time

TOOLS = ("bonnie++:bonnie++",)
WITHIN_S = 3600

# Names of the fields of format 1.98 that the lab keeps, by position. Speeds are in KiB/s, the others in operations/s.
FORMAT = "1.98"
FIELDS = {
    9: "write_chars_kib_s",
    11: "write_kib_s",
    13: "rewrite_kib_s",
    15: "read_chars_kib_s",
    17: "read_kib_s",
    19: "seeks_s",
    26: "create_s",
    32: "create_random_s",
}
FIELDS_MIN = 38


class BonnieError(Exception):
    """bonnie++ ended with an error, or printed what is not its line of figures."""


def command(folder, settings):
    """The command line. Without `per_char` the tests with one system call a character are left out: they measure the
    client's processor."""
    words = ["bonnie++", "-q", "-d", str(folder), "-u", "root", "-m", "lab"]
    words += ["-s", str(settings["size_mib"]), "-r", str(settings["ram_mib"]), "-n", str(settings["files"])]
    return words if settings.get("per_char", True) else [*words, "-f"]


def parse(text):
    """The figures in bonnie++'s CSV line. One that was too fast for bonnie++ to tell ("+++++") is left out."""
    lines = [line for line in text.splitlines() if line.startswith(f"{FORMAT},")]
    if len(lines) != 1:
        raise BonnieError(f"expected one line of format {FORMAT}: {text[:200]!r}")
    fields = lines[0].split(",")
    if len(fields) < FIELDS_MIN:
        raise BonnieError(f"a line of {len(fields)} fields: {lines[0]!r}")
    found = {}
    for position, name in FIELDS.items():
        if fields[position] and not fields[position].startswith("+"):
            try:
                found[name] = float(fields[position])
            except ValueError:
                raise BonnieError(f"{name} is {fields[position]!r}") from None
    return found


def run_together(folders, settings):
    """One bonnie++ in each folder, started together: [(finishing time in s, figures, raw line)] in order."""
    commands = [command(folder, settings) for folder in folders]
    began = time.monotonic()
    children = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for words in commands
    ]
    outcomes = [None] * len(children)

    def wait(number):
        child = children[number]
        try:
            out, error = child.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            out, error = child.communicate()
        outcomes[number] = (time.monotonic() - began, child.returncode, out, error)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(len(children))]
    try:
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
    finished = []
    for words, (seconds, code, out, error) in zip(commands, outcomes):
        if code != 0:
            raise BonnieError(f"{' '.join(words)}: exit code {code}: {error.strip()[-500:]}")
        finished.append((seconds, parse(out), out.strip()))
    return finished
