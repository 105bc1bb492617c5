"""tgt, an iSCSI target in user space, that serves raw files with direct asynchronous I/O on the loopback."""

import subprocess
from pathlib import Path

from .process import Process, free_port, wait_until

READY_WITHIN_S = 30
NAME = "iqn.2026-01.io.azekura.peer"
SOCKETS = Path("/var/run/tgtd")


class TgtServer:
    """A tgtd of its own; its targets are numbered from 1, and have one logical unit each, with number 1."""

    def __init__(self, folder):
        self.log = Path(folder) / "tgtd.log"
        self.port, self.control = free_port(), str(free_port())
        self.process = None

    def start(self):
        SOCKETS.mkdir(parents=True, exist_ok=True)
        command = ["tgtd", "--foreground", "--control-port", self.control, "--iscsi", f"portal=127.0.0.1:{self.port}"]
        self.process = Process(command, self.log)
        wait_until(self._answers, READY_WITHIN_S, "tgtd")

    def add(self, number, path):
        """Makes a target of a raw file."""
        self._tell("new", "target", number, "--targetname", f"{NAME}:{number}")
        self._tell("new", "logicalunit", number, "--lun", 1, "--backing-store", path, "--bstype", "aio")
        self._tell("bind", "target", number, "--initiator-address", "ALL")

    def uri(self, number):
        return f"iscsi://127.0.0.1:{self.port}/{NAME}:{number}/1"

    def stop(self):
        if self.process is not None:
            self.process.kill()
        for path in SOCKETS.glob(f"socket.{self.control}*"):
            path.unlink()

    def _answers(self):
        if not self.process.alive:
            raise RuntimeError(f"tgtd ended at its start\n{self.process.log_tail()}")
        return self._run("--op", "show", "--mode", "sys").returncode == 0

    def _tell(self, operation, mode, number, *words):
        done = self._run("--op", operation, "--mode", mode, "--tid", number, *words)
        if done.returncode != 0:
            raise RuntimeError(f"tgtadm {operation} {mode}: {done.stderr.strip()}")

    def _run(self, *words):
        command = ["tgtadm", "--control-port", self.control, "--lld", "iscsi", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True)
