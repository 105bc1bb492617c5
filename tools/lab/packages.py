"""Debian packages that targets and experiments need: found by command or file, installed only when missing."""

import glob
import os
import shutil
import subprocess

INSTALL_WITHIN_S = 900


class Unavailable(Exception):
    """Something cannot run on this machine; the message says why. It is shown in the report, not an error."""


def missing(tools):
    """Packages of those "command:package" or "/pattern:package" pairs whose command or file is not there."""
    wanted = []
    for pair in tools:
        thing, package = pair.split(":")
        there = glob.glob(thing) if thing.startswith("/") else shutil.which(thing)
        if not there and package not in wanted:
            wanted.append(package)
    return wanted


def ensure(tools):
    """Installs what is missing with apt; Unavailable when that is not possible."""
    wanted = missing(tools)
    if not wanted:
        return
    names = " ".join(wanted)
    if not shutil.which("apt-get"):
        raise Unavailable(f"needs {names}; this is not Debian or Ubuntu, install them by hand")
    if os.geteuid() != 0:
        raise Unavailable(f"needs root to install: apt-get install {names}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *wanted],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=INSTALL_WITHIN_S)
    if done.returncode != 0 or missing(tools):
        raise Unavailable(f"apt could not install {names}: {done.stderr.strip()[-300:]}")


def version_of(package):
    """The installed version of a Debian package, or "unknown"."""
    command = ["dpkg-query", "--show", "--showformat=${Version}", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
