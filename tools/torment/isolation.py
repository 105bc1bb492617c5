"""Namespaces of our own: network, mounts and process ids, so that everything is gone when this process is.

The command starts itself again inside. There it is process 1: when it ends, however it ends, the kernel kills every
process that it has started and takes away its mounts and network namespaces. Signals cannot reach anybody else's
process.
"""

import os
import subprocess
import sys

_MARK = "AZEKURA_TORMENT_INSIDE"


def inside():
    return os.environ.get(_MARK) == "1" and os.getpid() == 1


def enter():
    """Replaces this process by `unshare`, which runs the same command inside; returns at once when it already is."""
    if inside():
        _prepare()
        return
    if os.geteuid() != 0:
        sys.exit("torment needs root: it makes network namespaces and mounts")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
    command += ["--", sys.executable, "-m", "tools.torment", *sys.argv[1:]]
    os.execvpe("unshare", command, {**os.environ, _MARK: "1"})


def _prepare():
    os.environ.pop(_MARK, None)
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
