"""File systems on a volume, which nbdfuse and a loop device make a device of."""

import hashlib
import os
import subprocess

from .process import Process, wait_until
from .run import run

MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
CHECK = {
    "ext4": ["fsck.ext4", "-f", "-n"],
    "xfs": ["xfs_repair", "-n"],
    "btrfs": ["btrfs", "check", "--readonly"],
}


class Attached:
    """A volume as a loop device; `close` undoes every step that was done, in reverse, whatever failed."""

    def __init__(self, uri, folder):
        self.undo = []
        try:
            self._attach(uri, folder)
        except BaseException:
            self.close()
            raise

    def _attach(self, uri, folder):
        point = folder / "fuse"
        point.mkdir(exist_ok=True)
        server = Process(["nbdfuse", point, uri], folder / "nbdfuse.log")
        self.undo.append(lambda: server.child.wait(60))
        self.undo.append(lambda: subprocess.run(["fusermount3", "-u", "-z", point], check=False))
        file = point / "nbd"

        def there():
            assert server.alive, f"nbdfuse ended\n{server.log_tail()}"
            return file.exists()

        wait_until(there, 30, "nbdfuse")
        self.device = run("losetup", "--find", "--show", file).stdout.strip()
        self.undo.append(lambda: subprocess.run(["losetup", "--detach", self.device], check=False))
        self.point = folder / "mnt"
        self.point.mkdir(exist_ok=True)

    def mount(self):
        run("mount", self.device, self.point)
        self.undo.append(
            lambda: subprocess.run(["umount", "--lazy", self.point], check=False, stderr=subprocess.DEVNULL)
        )

    def unmount(self):
        run("umount", self.point)

    def close(self):
        while self.undo:
            self.undo.pop()()


def tree_digests(top):
    """Path → SHA-256 of every file below `top`."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, top)] = hashlib.sha256(file.read()).hexdigest()
    return found


def kernel_mounts(kind):
    with open("/proc/filesystems") as file:
        known = kind in file.read().split()
    return known or subprocess.run(["modprobe", "--quiet", kind], check=False).returncode == 0
