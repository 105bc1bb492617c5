"""Folders for devices and sockets: on a real disk, with a short path, away from the source tree.

Who makes a folder holds a lock on it until it ends. A run that was killed can't clean up after itself, and its devices
are tens of gigabytes: the next run removes the folders that nobody holds and no process names.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Of every folder that is made here.
PREFIXES = ("azk-", "azt-", "azlab-")
# The largest end-to-end tests come to 13 GiB (two clusters of three devices); the lab's want 8 that stay free.
TEST_BYTES = 20 * 2**30
# What `./dev test` has built in target/ when it is done.
BUILD_BYTES = 8 * 2**30
# A folder that is younger may not be locked yet by who makes it.
YOUNG_S = 60
# Folders of this process, and the descriptors that hold their locks.
_held = {}


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
    assert prefix.startswith(PREFIXES), f"nobody would ever remove what a killed run left of {prefix}"
    for path in [path for path in _held if not path.exists()]:
        os.close(_held.pop(path))
    base = base_folder()
    sweep(base)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    _held[path] = _lock(path)
    return path


def sweep(base):
    """Removes what runs that were killed have left in `base`, and tells what."""
    for path in abandoned(base):
        free = shutil.disk_usage(base).free
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            # A mount of the killed run, for example, whose server is gone.
            print(f"can't remove all of {path}, which a run that was killed had left: look there", file=sys.stderr)
            continue
        gained = max(0, shutil.disk_usage(base).free - free) / 2**30
        print(f"removed {path}, which a run that was killed had left: {gained:.1f} GiB", file=sys.stderr)


def abandoned(base, young_s=YOUNG_S):
    """The folders in `base` that were made here, by this user, by processes that have ended."""
    found = []
    for path in sorted(path for prefix in PREFIXES for path in base.glob(f"{prefix}*")):
        try:
            about = path.lstat()
            if about.st_uid != os.getuid() or time.time() - about.st_mtime < young_s:
                continue
            lock = _lock(path)
        except OSError:  # Its owner has just removed it, or it is no folder.
            continue
        if lock is not None:
            os.close(lock)
            found.append(path)
    return [path for path in found if not _named_by_a_process(path)]


def lacking(base, needed):
    """What to say where the disk of `base` has fewer than `needed` bytes free; None where it has them."""
    free = shutil.disk_usage(base).free
    if free >= needed:
        return None
    return (
        f"the tests need {needed / 2**30:.0f} GiB of disk in {base}, which has {free / 2**30:.1f}: make room, or name "
        "a folder on another disk with AZEKURA_TEST_DIR"
    )


def lacking_for_all(build, base, build_bytes=BUILD_BYTES, test_bytes=TEST_BYTES):
    """The same before anything is built in `build`: what lies there already need not be built again."""
    built = sum(path.lstat().st_blocks * 512 for path in build.rglob("*") if path.is_file()) if build.exists() else 0
    rest = max(0, build_bytes - built)
    building = build if build.exists() else build.parent
    if building.stat().st_dev == base.stat().st_dev:
        return lacking(base, rest + test_bytes)
    free = shutil.disk_usage(building).free
    if free < rest:
        return (
            f"the build needs {rest / 2**30:.0f} GiB of disk in {build}, which has {free / 2**30:.1f}: make room, or "
            "name a folder on another disk with CARGO_TARGET_DIR"
        )
    return lacking(base, test_bytes)


def _lock(path):
    """A descriptor that holds the lock of a folder; None when another process holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _named_by_a_process(path):
    """Nodes outlive a benchmark that was killed: their folder is theirs as long as they run."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(path) in (process / "cmdline").read_bytes():
                return True
        except OSError:
            pass  # It has ended, or is another user's.
    return False


def main():
    base = base_folder()
    sweep(base)
    return lacking_for_all(Path(sys.argv[1]), base)


if __name__ == "__main__":
    sys.exit(main())
