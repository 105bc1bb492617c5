"""The cluster of the torment: nodes and three etcd members, each on its own machine, devices on small file systems."""

import json
import os
import subprocess
import urllib.error
import urllib.request

from tools.harness.cluster import Cluster, Node, binary
from tools.harness.device import log_files
from tools.harness.hanging import HangingFile
from tools.harness.process import Process, wait_until
from tools.harness.run import run

from . import network

ETCD_MEMBERS = 3
ETCD_PORT, ETCD_PEER_PORT = 2379, 2380
SPARE_BYTES = 192 * 2**20


def mib(size):
    number, unit = int(size[:-3]), size[-3:]
    return number * {"MiB": 1, "GiB": 1024}[unit]


class RigNode(Node):
    """A node on its machine. Its data folder is a file system of its own, little larger than its devices.

    Each of its shards has a device, and all devices together have the size that one alone has.
    """

    def __init__(self, cluster, number, machine, shards=1):
        super().__init__(cluster, number)
        self.machine, self.shards = machine, shards
        self.mounted = False
        # The node's first device, if that can be made to hang.
        self.hanging = None

    @property
    def api(self):
        return f"http://{self.machine.address}:7180"

    def uri(self, volume="vol1", tcp=False):
        if tcp:
            return f"nbd://{self.machine.address}:10809/{volume}"
        return super().uri(volume)

    @property
    def device_mib(self):
        return mib(self.cluster.device_size) // self.shards

    def arguments(self):
        address = self.machine.address
        words = ["node", "--name", self.name, "--data", self.data, "--listen", f"{address}:7101"]
        words += ["--api", f"{address}:7180", "--nbd", f"{address}:10809", "--nbd-socket", self.socket]
        # Its clients speak no TLS.
        words += ["--nbd-transport", "plain"]
        words += ["--config", self.cluster.config_url, "--device-size", f"{self.device_mib}MiB"]
        words += ["--devices", self.shards, "--shards", self.shards]
        # The machines are name spaces of this one: nobody else reaches them.
        words += ["--api-access", "open"]
        return [str(word) for word in words]

    def start(self):
        assert not self.alive, f"{self.name} is running"
        if not self.mounted:
            self._make_file_system()
        command = self.machine.inside([binary(), *self.arguments()])
        self.process = Process(command, self.cluster.folder / f"{self.name}.log")

    def _make_file_system(self):
        image = self.cluster.folder / f"{self.name}.img"
        with open(image, "wb") as file:
            device_bytes = self.device_mib * 2**20 * 17 // 16 + SPARE_BYTES
            os.truncate(file.fileno(), self.shards * device_bytes)
        run("mkfs.ext4", "-q", "-F", "-m", "0", image)
        self.data.mkdir()
        # The loop device goes with the mount.
        run("mount", "-o", "loop", image, self.data)
        self.mounted = True

    def put_device_behind_server(self):
        """From now on the node's first device can be made to hang (`self.hanging`)."""
        self.stop()
        self.hanging = HangingFile(log_files(self)[0], self.cluster.folder / f"{self.name}-device")
        self.start()

    def unmount(self):
        if self.hanging is not None:
            self.hanging.close()
            self.hanging = None
        if self.mounted:
            subprocess.run(["umount", "--lazy", self.data], check=False)
            self.mounted = False

    def fill(self):
        """Takes all the space that is left in the node's file system, without the disk having to work for it."""
        with open(self.data / "filler", "ab") as file:
            for step in (32 * 2**20, 2**20, 4096):
                try:
                    while True:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                except OSError:
                    pass

    def empty(self):
        (self.data / "filler").unlink(missing_ok=True)


class EtcdMember:
    """One etcd process on a node's machine."""

    def __init__(self, rig, number, machine):
        self.rig, self.machine, self.name = rig, machine, f"etcd{number}"
        self.process = None

    @property
    def url(self):
        return f"http://{self.machine.address}:{ETCD_PORT}"

    @property
    def peer_url(self):
        return f"http://{self.machine.address}:{ETCD_PEER_PORT}"

    @property
    def alive(self):
        return self.process is not None and self.process.alive

    def start(self):
        members = ",".join(f"{member.name}={member.peer_url}" for member in self.rig.members)
        command = ["etcd", "--name", self.name, "--data-dir", self.rig.folder / self.name, "--logger", "zap"]
        command += ["--log-level", "warn", "--initial-cluster", members]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url]
        self.process = Process(self.machine.inside(command), self.rig.folder / f"{self.name}.log")

    def healthy(self):
        assert self.alive, f"{self.name} ended\n{self.process.log_tail()}"
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def maintain(self, what, **asked):
        """An answer of etcd's maintenance service; None: there is none."""
        request = urllib.request.Request(f"{self.url}/v3/maintenance/{what}", data=json.dumps(asked).encode())
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None

    def leads(self):
        status = self.maintain("status")
        return status is not None and status.get("leader") == status["header"]["member_id"]


class Rig(Cluster):
    """Nodes n1… on machines m1…, etcd on the first three of them."""

    def __init__(self, folder, shards=(1, 1, 1, 1), device_size="2GiB"):
        """`shards` has the number of each node."""
        super().__init__(folder, nodes=0, config="etcd", device_size=device_size)
        network.make_bridge()
        self.machines = [network.Machine(number) for number in range(1, len(shards) + 1)]
        nodes = enumerate(zip(self.machines, shards, strict=True), 1)
        self.nodes = [RigNode(self, number, machine, count) for number, (machine, count) in nodes]
        self.members = [EtcdMember(self, i + 1, self.machines[i]) for i in range(ETCD_MEMBERS)]

    @property
    def config_url(self):
        return ",".join(member.url for member in self.members)

    def start_etcd(self):
        for member in self.members:
            if not member.alive:
                member.start()
        wait_until(lambda: all(member.healthy() for member in self.members), 60, "etcd's health")

    def etcd_leader(self):
        return next((member for member in self.members if member.alive and member.leads()), None)

    def member_at(self, node):
        """The member of etcd on that node's machine."""
        return next(member for member in self.members if member.machine is node.machine)

    def let_lead(self, member):
        """That member of etcd becomes its leader."""

        def moved():
            leader, wanted = self.etcd_leader(), member.maintain("status")
            if leader not in (None, member) and wanted:
                leader.maintain("transfer-leadership", targetID=wanted["header"]["member_id"])
            return leader is member

        wait_until(moved, 60, f"{member.name} leading")

    def destroy_processes(self):
        """Ends everything; the folder with the logs stays."""
        for process in [*self.nodes, *self.members]:
            if process.process is not None:
                process.process.kill()
        for node in self.nodes:
            node.unmount()
