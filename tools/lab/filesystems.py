"""File systems on volumes: nbdfuse (for volumes over NBD), a loop device, ext4, a mount."""

import ctypes
import os
import subprocess
import time

from tools.harness.process import Process, wait_until
from tools.harness.run import run

MOUNTED_WITHIN_S = 30
DOWN_WITHIN_S = 15
TOOLS = ("nbdfuse:libnbd-bin", "fusermount3:fuse3", "losetup:mount", "mkfs.ext4:e2fsprogs")


# From linux/sched.h and linux/mount.h.
CLONE_NEWNS = 0x00020000
MS_PRIVATE_RECURSIVE = (1 << 18) | (1 << 14)


def keep_mounts_private():
    """Gives this process and its children a view of the mounts of their own, if it may have one.

    Whoever copies the machine's view of mounts meanwhile (containers, `unshare`) would otherwise hold our file systems
    after their unmounting; and of a process that is killed, no mount remains.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0:
        libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_PRIVATE_RECURSIVE), None)


class Mounted:
    """ext4 on a file or on an NBD export, mounted on `folder`."""

    def __init__(self, folder, path=None, uri=None):
        assert (path is None) != (uri is None), "either a file or an NBD export"
        self.folder = folder
        self.path, self.uri = path, uri
        self.fuse = None
        self.fuse_folder = folder.with_name(folder.name + ".fuse")
        self.device = None

    def start(self):
        if self.uri is not None:
            self._start_fuse()
        self.device = run("losetup", "--find", "--show", "--direct-io=on", self.path).stdout.strip()
        try:
            run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.device)
            self.folder.mkdir(parents=True)
            run("mount", "-o", "noatime", self.device, self.folder)
        finally:
            # While it is mounted this only marks the device: the kernel frees it with the unmounting.
            run("losetup", "--detach", self.device)

    def _start_fuse(self):
        self.fuse_folder.mkdir(parents=True)
        self.path = self.fuse_folder / "nbd"
        command = ["nbdfuse", self.fuse_folder, self.uri]
        self.fuse = Process(command, self.fuse_folder.with_suffix(".log"))

        def visible():
            if not self.fuse.alive:
                raise RuntimeError(f"nbdfuse ended at its start\n{self.fuse.log_tail()}")
            return os.path.ismount(self.fuse_folder) and self.path.exists()

        wait_until(visible, MOUNTED_WITHIN_S, "nbdfuse's mount")

    def stop(self):
        """Takes down what start got up, in turn; what stays up is told by an exception, after everything was tried."""
        problems = _taken_down(lambda: not os.path.ismount(self.folder), "umount", self.folder)
        if self.fuse is not None:
            problems += _taken_down(
                lambda: not os.path.ismount(self.fuse_folder), "fusermount3", "-u", self.fuse_folder
            )
            try:
                self.fuse.child.wait(DOWN_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.fuse.kill()
        if problems:
            raise RuntimeError("; ".join(problems))


def _taken_down(is_down, *command):
    """Repeats the command until `is_down()`: somebody may still have a file open. A list with the problem, or empty."""
    words = [str(word) for word in command]
    deadline = time.monotonic() + DOWN_WITHIN_S
    said = ""
    while not is_down():
        if time.monotonic() > deadline:
            return [f"{' '.join(words)}: {said or 'still in use'}"]
        said = subprocess.run(words, capture_output=True, text=True).stderr.strip()
        time.sleep(0.05)
    return []
