"""Volumes whose map is large: what they cost beside a small one, each figure as a ratio within one run.

Every part has a cluster of its own, which is deleted before the next one starts: the disk holds one at a time.
"""

import os
import re
import shutil
from pathlib import Path

from ..sizes import parse_size
from . import figures, parts
from .rig import NODES, Rig

# The devices are allocated at once; their maps grow beside them.
MAP_ROOM_BYTES = 2**30
GIB = 2**30
PARTS = {
    "thin": (parts.thin, "12GiB"),
    "dense": (parts.dense, "17GiB"),
    "sequential": (parts.sequential, "6GiB"),
}


def chosen(pattern):
    """The names of figures that `--only` asks for, and the parts that measure them, in order."""
    names = [goal.name for goal in figures.GOALS if re.search(pattern, goal.name)]
    wanted = {goal.part for goal in figures.GOALS if goal.name in names}
    return names, [part for part in PARTS if part in wanted]


def check_room(folder, device_bytes):
    """Refuses to start a test whose devices do not fit on the disk."""
    needed = NODES * (device_bytes + MAP_ROOM_BYTES)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RuntimeError(
            f"three devices of {device_bytes / GIB:.1f} GiB and their maps need {needed / GIB:.1f} GiB in {folder}, "
            f"which has {free / GIB:.1f}: make room, give a smaller --device-size, or another disk (AZEKURA_TEST_DIR)"
        )


def builds(options):
    """This build and, with --before, the other: their names and programs."""
    found = [("azekura", None)]
    if options.before:
        if not os.access(options.before, os.X_OK):
            raise RuntimeError(f"--before {options.before}: there is no program of this name")
        found.append(("before", Path(options.before).resolve()))
    return found


def measure(part, build, program, names, options, folder, progress):
    """One part on one build. Returns what it found."""
    function, device_size = PARTS[part]
    device_size = options.device_size or device_size
    check_room(folder, parse_size(device_size))
    rig = Rig(folder, build, program, device_size, options, progress)
    try:
        return function(rig, names)
    finally:
        progress(f"{build}: deleting the cluster of {part}")
        rig.target.stop()


def run(options, folder, progress):
    names, wanted = chosen(options.only)
    if not wanted:
        every = ", ".join(goal.name for goal in figures.GOALS)
        raise RuntimeError(f"--only {options.only}: no figure has such a name, of {every}")
    results = {build: {part: [] for part in wanted} for build, _ in builds(options)}
    for number in range(options.rounds):
        for part in wanted:
            turn = builds(options)
            for build, program in turn if number % 2 == 0 else reversed(turn):
                progress(f"{build}: {part}, round {number + 1} of {options.rounds}")
                results[build][part].append(measure(part, build, program, names, options, folder, progress))
    table = figures.judge(names, results)
    print(figures.terminal(table))
    for reason in figures.reasons(results):
        print(reason)
    return {
        "markdown": figures.markdown(table, results, options),
        "figures": figures.cells(table, options.minutes),
        "judged": [row.as_dict() for row in table],
        "results": results,
    }
