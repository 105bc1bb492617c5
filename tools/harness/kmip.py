"""PyKMIP's server as a process, and keys on it."""

import socket
import subprocess
from pathlib import Path

from tools.harness.cluster import HOST
from tools.harness.process import Process, free_port, wait_until

ROOT = Path(__file__).parents[2]
# Isolated, or it would take this module for the package of the same name.
PYTHON = [ROOT / "target" / "tools" / "bin" / "python", "-I"]
SCRIPT = Path(__file__).with_name("pykmip.py")


class Kmip:
    """The server, with certificates for nodes."""

    def __init__(self, folder, authority):
        folder.mkdir()
        self.folder = folder
        self.authority = authority
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self.server = authority.sign("kmip", "serverAuth")
        self.client = authority.sign("node", "clientAuth")
        self.process = None
        self.start()

    def start(self):
        words = [*PYTHON, SCRIPT, "serve", self.folder, self.port, *self.server, self.authority.certificate]
        self.process = Process(words, self.folder / "server.log")
        wait_until(self.listens, 60, "PyKMIP's server")

    def listens(self):
        assert self.process.alive, self.process.log_tail()
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def create(self, count):
        """The unique identifiers of new AES keys, which belong to the client whose certificate is `node`."""
        words = [*PYTHON, SCRIPT, "create", count, self.port, *self.client, self.authority.certificate]
        made = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, timeout=60)
        return made.stdout.split()[-count:]
