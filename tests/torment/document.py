"""docs/reliability.md: its measured parts are replaced by the commands that measure them."""

import os
import platform
import time

from ..harness.cluster import ROOT, binary

DOCUMENT = ROOT / "docs" / "reliability.md"


def circumstances(nodes):
    """When, of what and where something was measured."""
    built = time.strftime("%Y-%m-%d %H:%M", time.gmtime(binary().stat().st_mtime))
    return (
        f"Measured {time.strftime('%Y-%m-%d %H:%M')} UTC with a binary built {built}, on {nodes} nodes of one machine "
        f"with {os.cpu_count()} processors, Linux {platform.release()}; the load average over the last five minutes of "
        f"it was {os.getloadavg()[1]:.1f}."
    )


def replace_part(name, markdown):
    """Replaces what stands between the markers of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, rest = DOCUMENT.read_text().split(begin, 1)
    _, tail = rest.split(end, 1)
    DOCUMENT.write_text(f"{head}{begin}\n{markdown}\n{end}{tail}")
