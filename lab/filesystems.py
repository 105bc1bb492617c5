"""File systems on volumes: nbdfuse (for volumes over NBD), a loop device, ext4, a mount."""

import os
import subprocess

from tests.harness.process import Process, wait_until
from tests.harness.run import run

MOUNTED_WITHIN_S = 30
TOOLS = ("nbdfuse:libnbd-bin", "fusermount3:fuse3", "losetup:mount", "mkfs.ext4:e2fsprogs")


class Mounted:
    """ext4 on a file or on an NBD export, mounted on `folder`."""

    def __init__(self, folder, path=None, uri=None):
        assert (path is None) != (uri is None), "either a file or an NBD export"
        self.folder = folder
        self.path, self.uri = path, uri
        self.fuse = None
        self.fuse_folder = folder.with_name(folder.name + ".fuse")
        self.device = None
        self.mounted = False

    def start(self):
        if self.uri is not None:
            self._start_fuse()
        self.device = run("losetup", "--find", "--show", "--direct-io=on", self.path).stdout.strip()
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.device)
        self.folder.mkdir(parents=True)
        run("mount", "-o", "noatime", self.device, self.folder)
        self.mounted = True

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
        """Takes down what start got up, in turn; what fails is left and told by the exception of the last step."""
        failed = None
        if self.mounted:
            failed = self._quietly("umount", self.folder)
        if self.device:
            failed = self._quietly("losetup", "--detach", self.device) or failed
        if self.fuse is not None and self.fuse.alive:
            failed = self._quietly("fusermount3", "-u", self.fuse_folder) or failed
            try:
                self.fuse.child.wait(MOUNTED_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.fuse.kill()
        if failed:
            raise RuntimeError(failed)

    @staticmethod
    def _quietly(*command):
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True)
        return f"{' '.join(words)}: {done.stderr.strip()}" if done.returncode else None
