"""Documents whose measured parts and figures are written by the commands that measure them."""

import os
import platform
import re
import subprocess
import time

from .cluster import ROOT, binary

PERFORMANCE = ROOT / "docs" / "performance.md"
RELIABILITY = ROOT / "docs" / "reliability.md"
SECURITY = ROOT / "docs" / "security.md"


def commands(page, name):
    """The block of a page that follows the mark `<!-- test: NAME -->`: what its reader types, or writes to a file."""
    found = re.search(rf"<!-- test: {name} -->\n((?: {{4,}}.*\n)+)", page.read_text())
    assert found, f"{page} has no commands for '{name}'"
    return found.group(1)


def circumstances(nodes):
    """When, of what and where something was measured."""
    built = time.strftime("%Y-%m-%d %H:%M", time.gmtime(binary().stat().st_mtime))
    return (
        f"Measured {time.strftime('%Y-%m-%d %H:%M')} UTC with a binary built {built}, on {nodes} nodes of one machine "
        f"with {os.cpu_count()} processors, Linux {platform.release()}; the load average over the last five minutes of "
        f"it was {os.getloadavg()[1]:.1f}."
    )


def commit():
    """The commit of the project's folder, "-dirty" if the program's sources differ; "unknown" without git."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]
    head = subprocess.run([*command, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode != 0:
        return "unknown"
    sources = ["diff", "--quiet", "HEAD", "--", "crates", "Cargo.toml", "Cargo.lock"]
    changed = subprocess.run([*command, *sources], check=False).returncode != 0
    return head.stdout.strip() + ("-dirty" if changed else "")


def replace_part(document, name, markdown):
    """Replaces what stands between the markers of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, rest = document.read_text().split(begin, 1)
    _, tail = rest.split(end, 1)
    document.write_text(f"{head}{begin}\n{markdown}\n{end}{tail}")


def set_figures(document, figures):
    """Replaces cells of the table that a document begins with: name of the cell → figure.

    A cell begins with its name as a comment. The commit and the day are written beside the figure.
    A figure that has no cell is an error.
    """
    text = document.read_text()
    for name, figure in figures.items():
        said = f"{figure} ({commit()}, {time.strftime('%Y-%m-%d')})"
        text, count = re.subn(rf"(<!-- {re.escape(name)} -->)[^|\n]*", lambda found: f"{found[1]} {said} ", text)
        if count != 1:
            raise ValueError(f"{document.name} has {count} cells named {name}, not 1")
    document.write_text(text)
