"""Machines that die, come again, or lose their network; and what a machine's end leaves behind."""

import re
import subprocess
import sys
import time
from pathlib import Path

from .place import CGROUPS, ROOT, entered, environment, inner_pid

TEXT = {"capture_output": True, "text": True, "check": True}


def on(which, command):
    """The command, in that machine's namespaces."""
    holder = int(which.pid_file.read_text())
    enter = f'read -r pid _ < /proc/{holder}/task/{holder}/children; exec nsenter -t "$pid" -m -n -p -C "--wd=$0" "$@"'
    return entered(["sh", "-c", enter, ROOT, *command])


def _mounted(which, kinds=""):
    """Numbers of the file systems that are mounted there, as major:minor; with `kinds`, of those alone."""
    if not which.pid_file.exists():
        return set()
    try:
        lines = subprocess.run(on(which, ["cat", "/proc/self/mountinfo"]), **TEXT).stdout.splitlines()
    except subprocess.CalledProcessError:
        # Its first process has ended, and all of its mounts with that.
        return set()
    return {line.split()[2] for line in lines if re.match(kinds, line.split(" - ")[1])}


def loops(*which):
    """Loop devices of volumes on these machines: the kernel's, which stay when namespaces end."""
    if inner_pid() is None:
        return []
    own = set().union(*(_mounted(each) for each in which))
    listed = subprocess.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-MAJ:MIN,BACK-FILE"], **TEXT)
    # All files that volumes are behind: a machine's own file systems are mounted there as well.
    volumes = [line.split(maxsplit=2) for line in listed.stdout.splitlines() if "/run/azekura-csi/" in line]
    return [name for name, number, _ in volumes if number in own]


def silence(*which):
    """Volumes of these machines answer no more. The last process to end would unmount a file system, and wait for the
    program that serves it, which may be that process."""
    numbers = {number.split(":")[1] for each in which for number in _mounted(each, r"fuse[ .]")}
    if inner_pid() is None or not numbers:
        return
    control = "/sys/fs/fuse/connections"
    # One whose program has ended meanwhile is not there any more.
    words = f"mountpoint -q {control} || mount -t fusectl none {control}; cd {control}; "
    words += 'for n; do [ ! -e "$n" ] || echo 1 > "$n/abort"; done'
    subprocess.run(entered(["sh", "-c", words, "sh", *sorted(numbers)]), check=True)


def detach(devices):
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=True)


def remove_groups(which=None):
    """Control groups of that machine, or of the whole cluster."""
    for line in CGROUPS.read_text().splitlines() if CGROUPS.exists() else []:
        group = Path(line) / which.name if which else Path(line)
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            _remove(folder)
        _remove(group)


def _remove(group):
    """A control group is gone when its last process is."""
    for _ in range(50):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
    print(f"kubernetes: {group} is still used by somebody", file=sys.stderr)


def kill(which):
    """As when its power fails: all of its processes and mounts end at once. Its folders stay."""
    devices = loops(which)
    silence(which)
    subprocess.run(entered(["kill", "-KILL", which.pid_file.read_text()]), check=True)
    which.pid_file.unlink()
    detach(devices)
    # A machine that starts has none, and kubelet would look for what is in them.
    remove_groups(which)


def start(which):
    """A machine that was killed comes again."""
    if which.pid_file.exists():
        raise SystemExit(f"kubernetes: {which.name} runs")
    again = [sys.executable, "-m", "tools.kubernetes", "machine-start", which.name]
    subprocess.run(entered(again), cwd=ROOT, env=environment(), check=True)


def cut(which):
    """Its network is away, to everybody."""
    subprocess.run(entered(["ip", "link", "set", which.link, "down"]), check=True)


def heal(which):
    subprocess.run(entered(["ip", "link", "set", which.link, "up"]), check=True)


FAULTS = {"kill": kill, "start": start, "cut": cut, "heal": heal}
