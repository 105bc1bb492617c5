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
        return json.loads(self._ask(method, request))

    def stream(self, method, **request):
        """All answers of a call that streams; CsiError when it is refused or breaks off."""
        return [json.loads(line) for line in self._ask(method, request).splitlines()]

    def _ask(self, method, request):
        command = [TOOLS / "csi-call", self.socket, method, json.dumps(request)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
        if ended.returncode == 3:
            raise CsiError(method, json.loads(ended.stdout.splitlines()[-1]))
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def kill(self):
        """SIGKILL, as a machine's out-of-memory killer sends it."""
        self.process.kill()

    def stop(self):
        if self.process is not None and self.process.alive:
            code = self.process.stop()
            assert code == 0, f"the driver ended with code {code}\n{self.process.log_tail()}"


class Pod:
    """A volume on its way to a pod; `end` takes back whatever was done."""

    def __init__(self, controller, node, folder, name, use, **create):
        self.controller, self.node, self.use = controller, node, use
        self.folder = folder / name
        self.folder.mkdir()
        self.staging = self.folder / "staging"
        self.staging.mkdir()
        self.target = self.folder / "target"
        size = create.pop("size", 256 * 2**20)
        made = controller.call(
            "Controller/CreateVolume",
            name=name,
            capacity_range={"required_bytes": size},
            volume_capabilities=[use],
            **create,
        )
        self.volume = made["volume"]["volume_id"]
        self.made = made["volume"]
        self.secrets = create.get("secrets", {})

    def publish_to_node(self):
        request = {"volume_id": self.volume, "node_id": self.node.node.name, "volume_capability": self.use}
        return self.controller.call("Controller/ControllerPublishVolume", **request)

    def stage(self):
        request = {"staging_target_path": str(self.staging), "volume_capability": self.use}
        return self.node.call("Node/NodeStageVolume", volume_id=self.volume, secrets=self.secrets, **request)

    def publish(self, target=None, readonly=False):
        request = {"staging_target_path": str(self.staging), "target_path": str(target or self.target)}
        request |= {"volume_capability": self.use, "readonly": readonly, "secrets": self.secrets}
        return self.node.call("Node/NodePublishVolume", volume_id=self.volume, **request)

    def unpublish(self, target=None):
        request = {"volume_id": self.volume, "target_path": str(target or self.target)}
        return self.node.call("Node/NodeUnpublishVolume", **request)

    def unstage(self):
        request = {"volume_id": self.volume, "staging_target_path": str(self.staging)}
        return self.node.call("Node/NodeUnstageVolume", **request)

    def unpublish_from_node(self):
        request = {"volume_id": self.volume, "node_id": self.node.node.name}
        return self.controller.call("Controller/ControllerUnpublishVolume", **request)

    def delete(self):
        return self.controller.call("Controller/DeleteVolume", volume_id=self.volume)

    def up(self):
        self.publish_to_node()
        self.stage()
        self.publish()
        return self

    def down(self):
        self.unpublish()
        self.unstage()
        self.unpublish_from_node()

    def end(self):
        self.down()
        self.delete()

    def grow_in_the_cluster(self, size):
        range_ = {"required_bytes": size}
        told = self.controller.call("Controller/ControllerExpandVolume", volume_id=self.volume, capacity_range=range_)
        assert told["node_expansion_required"]

    def grow_on_the_node(self, size):
        range_ = {"required_bytes": size}
        request = {"volume_path": str(self.target), "staging_target_path": str(self.staging)}
        return self.node.call("Node/NodeExpandVolume", volume_id=self.volume, capacity_range=range_, **request)

    def grow(self, size):
        self.grow_in_the_cluster(size)
        return self.grow_on_the_node(size)

    def total(self):
        request = {"volume_id": self.volume, "volume_path": str(self.target)}
        usage = self.node.call("Node/NodeGetVolumeStats", **request)["usage"]
        return next(int(entry["total"]) for entry in usage if entry["unit"] == "BYTES")
