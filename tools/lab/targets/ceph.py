"""Ceph from Debian's packages: one monitor, one manager, object stores (OSDs) on files, volumes as RBD images."""

import json
import socket
import struct
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

from tools.harness.process import Process, free_port, wait_until
from tools.lab import proc

from .base import Target
from .nbd import Bridges

READY_WITHIN_S = 600
MIB = 2**20
POOL = "rbd"
OSDS = 3
FORMATTING_AT_ONCE = 4
# Placement groups an OSD, copies counted: half of what Ceph's own advice aims at, as many as a small machine bears.
GROUPS_PER_OSD = 50
# A BlueStore device holds its write-ahead log and its metadata beside the data.
OSD_BYTES_MIN = 2560 * MIB
ROOM = 2
MEMORY_TARGET = 2048 * MIB
# Each device reserves a queue of asynchronous I/O, and Linux bounds their sum (fs.aio-max-nr, 65,536 by default).
QUEUE_DEPTH_MAX, QUEUES_TOGETHER = 1024, 16384

CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = v2:{address}:{port}
auth cluster required = none
auth service required = none
auth client required = none
ms bind ipv6 = false
osd pool default size = {copies}
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd class update on start = false
crush location = root=default host=h$id
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000
mon data avail warn = 2
mon data avail crit = 1
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
keyring = {folder}/keyring
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd$id
bluestore block size = {osd_bytes}
bluestore block create = true
bdev aio max queue depth = {queue_depth}
osd memory target = {memory_target}
debug ms = 0
debug osd = 0
debug bluestore = 0
debug bluefs = 0
debug rocksdb = 0
[client]
rbd cache = false
"""


class Ceph(Target):
    name = "ceph"
    title = "Ceph"
    about = (
        "One monitor, one manager and three OSDs (BlueStore on files) without authentication and without debug logs; "
        "fio with librbd, whose own cache is off. A write is finished when every copy has it durably; checksums on."
    )
    tools = (
        "fio:fio",
        "ceph-mon:ceph-mon",
        "ceph-mgr:ceph-mgr",
        "ceph-osd:ceph-osd",
        "ceph:ceph-common",
        "rbd:ceph-common",
        "qemu-nbd:qemu-utils",
        "/usr/lib/*/qemu/block-rbd.so:qemu-block-extra",
    )
    versions_of = ("ceph-osd", "librbd1")
    variants = {"ceph": {"copies": 2}, "ceph-1copy": {"copies": 1}, "ceph-3copies": {"copies": 3}}
    counts_devices = True
    networked = True
    start_s, start_s_a_device = 14, 1.5

    def __init__(self, place, copies=2, devices=None):
        super().__init__(place, min(copies, devices or OSDS), 1, devices or OSDS)
        network = place.network
        self.address = network.address(1) if network else "127.0.0.1"
        self.configuration = self.folder / "ceph.conf"
        self.servers, self.osds = [], []
        self.bridges = Bridges(self.folder, self.client_prefix())
        share = int(place.data_bytes * self.copies * ROOM) // self.devices
        self.osd_bytes = max(OSD_BYTES_MIN, share // MIB * MIB)

    def disk_bytes(self):
        # Devices are sparse: of each, some 200 MiB of log and metadata are written beside the data.
        return self.place.data_bytes * self.copies * ROOM + self.devices * 200 * MIB

    def _node_of(self, osd):
        return osd % self.place.network.nodes + 1

    def client_prefix(self):
        network = self.place.network
        return [*(network.prefix(1) if network else []), "env", f"CEPH_CONF={self.configuration}"]

    def start(self):
        fsid = str(uuid.uuid4())
        text = CONFIGURATION.format(
            fsid=fsid,
            address=self.address,
            port=free_port(),
            copies=self.copies,
            folder=self.folder,
            osd_bytes=self.osd_bytes,
            memory_target=MEMORY_TARGET,
            queue_depth=min(QUEUE_DEPTH_MAX, QUEUES_TOGETHER // self.devices),
        )
        self.configuration.write_text(text)
        for name in ("mon", "mgr", *(f"osd{number}" for number in range(self.devices))):
            (self.folder / name).mkdir()
        self._make_keyring()
        endpoint = text.split("mon host = ")[1].splitlines()[0]
        monmap = self.folder / "monmap"
        self._run("monmaptool", "--create", "--addv", "a", f"[{endpoint}]", "--fsid", fsid, monmap)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", self.folder / "keyring")
        self._serve("ceph-mon", "a", 1)
        self._ceph("osd", "set-require-min-compat-client", "jewel")
        self._serve("ceph-mgr", "x", 1)
        self._make_osds()
        for number in range(self.devices):
            node = self._node_of(number) if self.place.network else 1
            self.osds.append(self._serve("ceph-osd", number, node))
        wait_until(self._all_up, READY_WITHIN_S, "the OSDs")
        self._make_pool()

    def _make_keyring(self):
        path = self.folder / "keyring"
        everything = ["--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"]
        self._run("ceph-authtool", "--create-keyring", path, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self._run("ceph-authtool", path, "--gen-key", "-n", "client.admin", *everything)

    def _make_osds(self):
        identities = [str(uuid.uuid4()) for _ in range(self.devices)]
        # One command line tool for all: its start takes longer than its work.
        lines = [f"osd new {identity} {number}\n" for number, identity in enumerate(identities)]
        self._run("ceph", "--connect-timeout", 60, text="".join(lines))

        def format_device(number):
            self._run("ceph-osd", "-i", number, "--mkfs", "--osd-uuid", identities[number])

        with ThreadPoolExecutor(FORMATTING_AT_ONCE) as pool:
            list(pool.map(format_device, range(self.devices)))

    def _serve(self, program, identity, node):
        """Starts a daemon in the foreground, on its node."""
        command = [program, "-f", "-c", self.configuration, "-i", identity]
        prefix = []
        if self.place.network:
            prefix = self.place.network.prefix(node)
            if program != "ceph-mon":
                command += ["--public-addr", self.place.network.address(node)]
        process = Process([*prefix, *command], self.folder / f"{program}.{identity}.out")
        self.servers.append(process)
        return process

    def _make_pool(self):
        groups = GROUPS_PER_OSD * self.devices // self.copies
        groups = 2 ** max(5, groups.bit_length() - 1)
        self._ceph("osd", "pool", "create", POOL, groups, groups)
        self._ceph("osd", "pool", "set", POOL, "size", self.copies, "--yes-i-really-mean-it")
        wait_until(self._all_clean, READY_WITHIN_S, "the placement groups")
        self._run("rbd", "pool", "init", POOL)
        for volume in range(self.place.volumes):
            # Several clients share an image in E0: with the exclusive lock, the default, they would only hand it about.
            size = f"{self.place.volume_bytes}B"
            self._run("rbd", "create", "--image-shared", "--size", size, f"{POOL}/vol{volume}")

    def _status(self):
        for server in self.servers:
            if not server.alive:
                raise RuntimeError(f"{server.command[0]} ended\n{server.log_tail()}")
        return json.loads(self._ceph("status", "--format", "json"))

    def _all_up(self):
        return self._status()["osdmap"]["num_up_osds"] == self.devices

    def _all_clean(self):
        groups = self._status()["pgmap"]
        clean = sum(state["count"] for state in groups.get("pgs_by_state", []) if state["state_name"] == "active+clean")
        return groups["num_pgs"] > 0 and clean == groups["num_pgs"]

    def _ceph(self, *words):
        return self._run("ceph", "--connect-timeout", 60, *words)

    def _run(self, *command, text=None):
        words = [str(word) for word in (*self.client_prefix(), *command)]
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=READY_WITHIN_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout[-500:]}{done.stderr[-1500:]}")
        return done.stdout

    def engine(self, volume=0):
        return ["--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", f"--rbdname=vol{volume}"]

    def uri(self, volume=0):
        return self.bridges.uri(volume, f"rbd:{POOL}/vol{volume}:conf={self.configuration}")

    def processes(self):
        return self.servers

    def counters(self):
        found = {"cache_hits": 0, "cache_misses": 0}
        for number, osd in enumerate(self.osds):
            usage = proc.usage_of(osd.pid)
            found[f"read_{number}"], found[f"written_{number}"] = usage.read_bytes, usage.written_bytes
            counters = ask(self.folder / f"osd.{number}.asok", "perf dump", logger="bluestore").get("bluestore", {})
            found["cache_hits"] += counters.get("bluestore_buffer_hit_bytes", 0) // 4096
            found["cache_misses"] += counters.get("bluestore_buffer_miss_bytes", 0) // 4096
        return found

    def stop(self):
        self.bridges.stop()
        for process in reversed(self.servers):
            # The data is thrown away: nothing is worth a clean stop.
            process.kill()


def ask(path, command, **arguments):
    """A daemon's answer on its admin socket: the request ends with a zero byte, the answer begins with its length."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(path))
            connection.sendall(json.dumps({"prefix": command, **arguments}).encode() + b"\0")
            (length,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
            return json.loads(connection.recv(length, socket.MSG_WAITALL))
    except (OSError, struct.error, ValueError):
        return {}
