"""Folders for devices and sockets: on a real disk, with a short path, away from the source tree."""

import os
import subprocess
import tempfile
from pathlib import Path


def filesystem_of(folder):
    command = ["stat", "--file-system", "--format=%T", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def base_folder():
    """AZEKURA_TEST_DIR, else /tmp, else /var/tmp when /tmp lies in memory (devices need O_DIRECT and space)."""
    chosen = os.environ.get("AZEKURA_TEST_DIR")
    if chosen:
        return Path(chosen).resolve()
    return Path("/var/tmp" if filesystem_of("/tmp") in ("tmpfs", "ramfs") else "/tmp")


def new_folder(prefix="azk-"):
    """A new, empty folder. Its path is short: a unix socket's path has at most 107 bytes."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=base_folder()))
