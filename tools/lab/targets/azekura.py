"""Azekura: node processes of one cluster on this machine, or on the machines of a lab network."""

import json
import subprocess
import urllib.request

from tools.harness.cluster import binary
from tools.harness.device import SEGMENT_BYTES, is_initialised
from tools.harness.process import Process, free_port, wait_until

from .base import Target
from .nbd import Bridges

HEALTHY_WITHIN_S = 180
PREPARED_WITHIN_S = 1800
MIB = 2**20
# A log needs room: the devices together hold this many times the data's copies, so that cleaning is not the subject.
ROOM = 2.5
DEVICE_BYTES_MIN = 1024 * MIB
# With many devices on one machine a small one will do; the program takes no device under 320 MiB.
SMALL_DEVICE_BYTES_MIN = 320 * MIB
CLASS = "lab"
# A volume's target, before its name.
IQN = "iqn.2026-01.io.azekura:"


class Node:
    """One azekura process."""

    def __init__(self, cluster, number, has_devices=True):
        network = cluster.place.network
        self.number, self.has_devices = number, has_devices
        self.name = f"n{number}"
        self.address = network.address(number) if network else "127.0.0.1"
        self.prefix = network.prefix(number) if network else []
        self.data = cluster.folder / self.name
        self.socket = cluster.folder / f"{self.name}.nbd"
        self.api = f"http://{self.address}:{free_port()}"
        self.listen = f"{self.address}:{free_port()}"
        self.process = None


class Azekura(Target):
    name = "azekura"
    title = "Azekura"
    about = (
        "Node processes over TCP, the client on the first node's unix socket with NBD. A write is finished when every "
        "copy has it durably; every block is checksummed from the gateway to the device and back, which cannot be "
        "switched off."
    )
    tools = ("fio:fio",)
    variants = {
        "azekura": {"copies": 2, "nodes": 3},
        "azekura-1copy": {"copies": 1, "nodes": 1},
        "azekura-1copy-noflush": {"copies": 1, "nodes": 1, "flush": False},
        "azekura-2copies-noflush": {"copies": 2, "nodes": 3, "flush": False},
        "azekura-3copies": {"copies": 3, "nodes": 3},
        "azekura-remote": {"copies": 2, "nodes": 3, "diskless": True},
    }
    counts_devices = True
    start_s = 5
    networked = True

    def __init__(self, place, copies=2, nodes=3, devices=None, flush=True, diskless=False):
        """`flush=False` promises power-loss protection of the devices; `diskless` leaves the client's node without a
        device. `devices` puts that many on one node, whose copies then share the machine but never a device."""
        self.one_machine = devices is not None
        if self.one_machine:
            nodes, copies = 1, min(copies, devices)
        super().__init__(place, copies, nodes, devices or 1)
        self.flush = flush
        self.cluster_nodes = [Node(self, number, not (diskless and number == 1)) for number in range(1, nodes + 1)]
        self.config = f"http://{self.first.address}:{free_port()}"
        holders = sum(node.has_devices for node in self.cluster_nodes) * self.devices
        least = SMALL_DEVICE_BYTES_MIN if self.devices > 6 else DEVICE_BYTES_MIN
        share = int(place.data_bytes * self.copies * ROOM) // holders
        self.device_bytes = max(least, share // SEGMENT_BYTES * SEGMENT_BYTES)
        self.holders = holders

    @property
    def first(self):
        return self.cluster_nodes[0]

    def unsupported(self):
        if self.place.network is not None and self.one_machine:
            return "many devices on one machine need no network"
        return super().unsupported()

    def disk_bytes(self):
        return self.device_bytes * self.holders

    def start(self):
        for node in self.cluster_nodes:
            words = self._node_command(node)
            node.process = Process([*node.prefix, *words], self.folder / f"{node.name}.log")
        wait_until(self._healthy, HEALTHY_WITHIN_S, "the cluster's health")
        domain = "device" if self.one_machine else "host"
        self._cli("class", "create", CLASS, "--copies", self.copies, "--failure-domain", domain)
        for number in range(self.place.volumes):
            self._cli("volume", "create", f"vol{number}", self.place.volume_bytes, "--class", CLASS)
        wait_until(self._healthy, HEALTHY_WITHIN_S, "the volumes' health")
        # A new device is written with zeros once, in the background: that is no part of any test.
        wait_until(self._devices_prepared, PREPARED_WITHIN_S, "the devices' first writing")

    def _node_command(self, node):
        words = [binary(), "node", "--name", node.name, "--data", node.data, "--listen", node.listen]
        words += ["--api", node.api.removeprefix("http://"), "--nbd-socket", node.socket, "--config", self.config]
        # As the peers do, whose nodes talk in clear as well.
        words += ["--transport", "plain", "--api-access", "open"]
        if node.number == 1:
            words += ["--serve-config", self.config.removeprefix("http://"), "--serve-config-transport", "plain"]
        if node.has_devices:
            words += ["--device-size", self.device_bytes, "--devices", self.devices]
            words += [] if self.flush else ["--power-loss-protected"]
        return [str(word) for word in words]

    def _cli(self, *words, check=True):
        command = [*self.first.prefix, binary(), *words, "--api", self.first.api]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise RuntimeError(f"azekura {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
        return done

    def _healthy(self):
        for node in self.cluster_nodes:
            if not node.process.alive:
                raise RuntimeError(f"{node.name} ended\n{node.process.log_tail()}")
        return self._cli("status", "--wait", 2, "--nodes", self.nodes, check=False).returncode == 0

    def _devices_prepared(self):
        return all(is_initialised(node) for node in self.cluster_nodes if node.has_devices)

    def uri(self, volume=0):
        return f"nbd+unix:///vol{volume}?socket={self.first.socket}"

    def engine(self, volume=0):
        return ["--ioengine=nbd", f"--uri={self.uri(volume)}"]

    def processes(self):
        return [node.process for node in self.cluster_nodes if node.process is not None]

    def counters(self):
        if self.place.network is not None:
            # The API listens inside the namespaces; asking there would start a process a sample.
            return {}
        found = {"cache_hits": 0, "cache_misses": 0}
        number = 0
        for node in self.cluster_nodes:
            with urllib.request.urlopen(f"{node.api}/v1/node/stats", timeout=10) as answer:
                devices = json.load(answer)["devices"]
            for device in devices:
                found["cache_hits"] += device["cache_hits"]
                found["cache_misses"] += device["cache_misses"]
                found[f"written_{number}"] = device["log_bytes"]
                # Blocks that the cache did not have, of 4 KiB each: what is read from the device for clients.
                found[f"read_{number}"] = device["cache_misses"] * 4096
                number += 1
        return found

    def versions(self):
        return {"azekura": subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout.strip()}

    def stop(self):
        for process in reversed(self.processes()):
            # The volumes are thrown away: nothing is worth a clean stop.
            process.kill()


class AzekuraIscsi(Azekura):
    """The same through the first node's iSCSI door, with the client that tgt is reached by."""

    name = "azekura-iscsi"
    title = "Azekura (iSCSI)"
    about = (
        "As Azekura, over iSCSI on the loopback; fio's NBD client through a qemu-nbd with libiscsi, which is part of "
        "the path and not counted as server."
    )
    tools = ("fio:fio", "qemu-nbd:qemu-utils", "/usr/lib/*/qemu/block-iscsi.so:qemu-block-extra")
    versions_of = ("libiscsi7",)
    variants = {"azekura-iscsi": {"copies": 2, "nodes": 3}, "azekura-iscsi-1copy": {"copies": 1, "nodes": 1}}
    counts_devices = networked = False

    def __init__(self, place, **options):
        super().__init__(place, **options)
        self.portal = f"127.0.0.1:{free_port()}"
        self.bridges = Bridges(self.folder)

    def _node_command(self, node):
        words = super()._node_command(node)
        return [*words, "--iscsi", self.portal] if node is self.first else words

    def uri(self, volume=0):
        return self.bridges.uri(volume, f"iscsi://{self.portal}/{IQN}vol{volume}/0")

    def versions(self):
        return Target.versions(self) | super().versions()

    def stop(self):
        self.bridges.stop()
        super().stop()
