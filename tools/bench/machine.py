"""The machine and the versions, so that a table can be judged and repeated."""

import os
import platform
import subprocess
from pathlib import Path

from tools.harness.cluster import ROOT, binary
from tools.harness.folders import base_folder, filesystem_of

from . import fio


def first_line(*command):
    """The first line that a command prints, or why there is none."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=20, cwd=ROOT)
    except OSError as error:
        return f"unknown ({error.strerror})"
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if lines else "unknown"


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def memory_gib():
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def describe():
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": memory_gib(),
        "kernel": platform.release(),
        "file_system": filesystem_of(base_folder()),
        "system": first_line("sed", "-n", 's/^PRETTY_NAME="\\(.*\\)"/\\1/p', "/etc/os-release"),
        "load_before": os.getloadavg()[0],
    }


def versions():
    return {
        "azekura": first_line(binary(), "--version"),
        "commit": first_line("git", "describe", "--always", "--dirty"),
        "fio": fio.version(),
        "qemu-nbd": first_line("qemu-nbd", "--version"),
    }
