"""The CSI driver of a node of a cluster, and a client that asks it as Kubernetes does."""

import json
import subprocess

from .cluster import ROOT
from .process import Process, wait_until

TOOLS = ROOT / "target" / "tools" / "go"
WITHIN_S = 90


class CsiError(Exception):
    """The driver has refused a call."""

    def __init__(self, method, told):
        super().__init__(f"{method}: {told['code']}: {told['message']}")
        self.code = told["code"]
        self.message = told["message"]


def mounted(filesystem="ext4", mode="SINGLE_NODE_WRITER", flags=()):
    """A use as a folder."""
    return {"mount": {"fs_type": filesystem, "mount_flags": list(flags)}, "access_mode": {"mode": mode}}


def as_device(mode="SINGLE_NODE_WRITER"):
    """A use as a device."""
    return {"block": {}, "access_mode": {"mode": mode}}


class Driver:
    """A part of the driver, `controller` or `node`, that asks one node's API."""

    def __init__(self, node, part, options=(), name=None):
        self.node = node
        self.part = part
        folder = node.cluster.folder / (name or f"csi-{part}-{node.name}")
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.socket = folder / "s"
        self.options = list(options)
        if part == "node":
            self.options += ["--node", node.name, "--state", folder / "state"]
        self.api = node.api
        self.process = None

    def start(self):
        words = [self.node.cluster.program, "csi", self.part, "--endpoint", f"unix://{self.socket}"]
        words += ["--api", self.api, *self.options]
        self.process = Process(words, self.folder / "log")

        def answers():
            assert self.process.alive, f"the driver ended\n{self.process.log_tail()}"
            try:
                return self.call("Identity/Probe")["ready"]
            except CsiError as error:
                assert error.code == "Unavailable", error
                return False

        wait_until(answers, 30, "the driver")
        return self

    def call(self, method, **request):
        """One call; CsiError when it is refused."""
        command = [TOOLS / "csi-call", self.socket, method, json.dumps(request)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
        if ended.returncode == 3:
            raise CsiError(method, json.loads(ended.stdout))
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def kill(self):
        """SIGKILL, as a machine's out-of-memory killer sends it."""
        self.process.kill()

    def stop(self):
        if self.process is not None and self.process.alive:
            code = self.process.stop()
            assert code == 0, f"the driver ended with code {code}\n{self.process.log_tail()}"
