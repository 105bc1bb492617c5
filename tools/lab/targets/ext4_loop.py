"""A file system between: a file on ext4 on a loop device on a file."""

import os

from tools.lab import filesystems
from tools.lab.packages import Unavailable

from .base import Target, make_files


class Ext4Loop(Target):
    name = "ext4-loop"
    title = "ext4 on loop"
    about = "A file on an ext4 of its own, on a loop device with direct I/O, on a file. One copy, no checksums of data."
    tools = ("fio:fio", "mkfs.ext4:e2fsprogs", "losetup:mount")
    variants = {"ext4-loop": {}}

    def __init__(self, place, **options):
        super().__init__(place, **options)
        self.mounted = None

    def start(self):
        if os.geteuid() != 0:
            raise Unavailable("needs root for loop devices and mounts")
        # Room for the file system's own: inodes, journal, reserve.
        (image,) = make_files(self.folder / "image", 1, self.disk_bytes())
        self.mounted = filesystems.Mounted(self.folder / "mount", image)
        self.mounted.start()
        self.files = make_files(self.mounted.folder / "volumes", self.place.volumes, self.place.volume_bytes)

    def disk_bytes(self):
        return self.place.data_bytes * 5 // 4 + 256 * 2**20

    def engine(self, volume=0):
        return ["--ioengine=libaio", f"--filename={self.files[volume]}"]

    def path(self, volume=0):
        return self.files[volume]

    def stop(self):
        if self.mounted is not None:
            self.mounted.stop()
