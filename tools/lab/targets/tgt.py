"""tgt: an iSCSI target in user space, reached with QEMU's iSCSI client."""

from tools.harness.tgt import TgtServer

from .base import Target, make_files
from .nbd import Bridges


class Tgt(Target):
    name = "tgt"
    title = "tgt (iSCSI)"
    about = (
        "tgtd on raw files with direct asynchronous I/O, over iSCSI on the loopback; fio's NBD client through a "
        "qemu-nbd with libiscsi, which is part of the path and not counted as server. One copy, no checksums of data."
    )
    tools = (
        "fio:fio",
        "tgtd:tgt",
        "tgtadm:tgt",
        "qemu-nbd:qemu-utils",
        "/usr/lib/*/qemu/block-iscsi.so:qemu-block-extra",
    )
    versions_of = ("tgt", "libiscsi7")
    variants = {"tgt": {}}

    def __init__(self, place, **options):
        super().__init__(place, **options)
        self.server = TgtServer(self.folder)
        self.bridges = Bridges(self.folder)

    def start(self):
        self.server.start()
        for number, path in enumerate(make_files(self.folder, self.place.volumes, self.place.volume_bytes), 1):
            self.server.add(number, path)

    def engine(self, volume=0):
        return ["--ioengine=nbd", f"--uri={self.uri(volume)}"]

    def uri(self, volume=0):
        return self.bridges.uri(volume, self.server.uri(volume + 1))

    def processes(self):
        return [self.server.process] if self.server.process else []

    def stop(self):
        self.bridges.stop()
        self.server.stop()
