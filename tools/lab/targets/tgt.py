"""tgt: an iSCSI target in user space, reached with QEMU's iSCSI client."""

import subprocess
from pathlib import Path

from tools.harness.process import Process, free_port, wait_until

from .base import Target, make_files
from .nbd import Bridges

READY_WITHIN_S = 30
NAME = "iqn.2026-01.io.azekura.lab"
SOCKETS = Path("/var/run/tgtd")


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
        self.port, self.control = free_port(), str(free_port())
        self.server = None
        self.bridges = Bridges(self.folder)

    def start(self):
        SOCKETS.mkdir(parents=True, exist_ok=True)
        command = ["tgtd", "--foreground", "--control-port", self.control, "--iscsi", f"portal=127.0.0.1:{self.port}"]
        self.server = Process(command, self.folder / "tgtd.log")
        wait_until(self._answers, READY_WITHIN_S, "tgtd")
        for number, path in enumerate(make_files(self.folder, self.place.volumes, self.place.volume_bytes), 1):
            self._tell("new", "target", number, "--targetname", f"{NAME}:vol{number - 1}")
            self._tell("new", "logicalunit", number, "--lun", 1, "--backing-store", path, "--bstype", "aio")
            self._tell("bind", "target", number, "--initiator-address", "ALL")

    def _answers(self):
        if not self.server.alive:
            raise RuntimeError(f"tgtd ended at its start\n{self.server.log_tail()}")
        return self._run("--op", "show", "--mode", "sys").returncode == 0

    def _tell(self, operation, mode, number, *words):
        done = self._run("--op", operation, "--mode", mode, "--tid", number, *words)
        if done.returncode != 0:
            raise RuntimeError(f"tgtadm {operation} {mode}: {done.stderr.strip()}")

    def _run(self, *words):
        command = ["tgtadm", "--control-port", self.control, "--lld", "iscsi", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True)

    def engine(self, volume=0):
        return ["--ioengine=nbd", f"--uri={self.uri(volume)}"]

    def uri(self, volume=0):
        return self.bridges.uri(volume, f"iscsi://127.0.0.1:{self.port}/{NAME}:vol{volume}/1")

    def processes(self):
        return [self.server] if self.server else []

    def stop(self):
        self.bridges.stop()
        for process in self.processes():
            process.kill()
        for path in SOCKETS.glob(f"socket.{self.control}*"):
            path.unlink()
