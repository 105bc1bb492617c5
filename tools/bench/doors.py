"""The doors: iSCSI beside tgt, vhost-user beside qemu-storage-daemon's, NVMe/TCP's processor time beside NBD's.

The first two peers serve a raw file, without copies; each pair has the same client.
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.harness.cluster import HOST
from tools.harness.nvme import SUBSYSTEM
from tools.harness.process import Process, free_port, wait_until
from tools.harness.tgt import TgtServer

from . import fio
from .plan import DOORS_CPU_MAX, DOORS_ISCSI_Q1_MIN, DOORS_ISCSI_Q128_MIN, DOORS_VHOST_MIN, FILL, READ_ONCE
from .report import yes
from .sizes import parse_size
from .targets import VOLUME, Attached, Azekura

BLOCK = 4096
# QEMU's client goes on by this prime number of blocks, so that every block's turn comes before one comes again.
STRIDE = 104_729 * BLOCK
# Of its first run, which tells how many requests the seconds of a test are.
FEW = 2000
GRACE_S = 120
IQN = "iqn.2026-01.io.azekura:"


@dataclass(frozen=True)
class Case:
    """A test of a door. `of`: what is compared with the peer's, the rate or the servers' CPU time of a request."""

    door: str
    operation: str
    depth: int
    of: str
    goal: float

    @property
    def name(self):
        return f"{self.door}_{self.operation}_q{self.depth}"

    def reached(self, ratio):
        return ratio >= self.goal if self.of == "rate" else ratio <= self.goal


CASES = [
    *(
        Case("iscsi", operation, depth, "rate", goal)
        for depth, goal in ((128, DOORS_ISCSI_Q128_MIN), (1, DOORS_ISCSI_Q1_MIN))
        for operation in ("write", "read")
    ),
    *(Case("vhost", operation, 64, "rate", DOORS_VHOST_MIN) for operation in ("write", "read")),
    *(Case("nvme", operation, 128, "cpu", DOORS_CPU_MAX) for operation in ("write", "read")),
]


@dataclass
class Side:
    """One end of a comparison: how a case is run there, and whose CPU time counts."""

    title: str
    run: object
    processes: object

    def measure(self, case, secs):
        before = self._cpu_s()
        requests, seconds = self.run(case, secs)
        return {"rate": requests / seconds, "cpu": (self._cpu_s() - before) * 1e6 / requests}

    def _cpu_s(self):
        return sum(process.cpu_seconds() for process in self.processes())


def output(words, within_s):
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=within_s)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done within {within_s} s: {words}") from None
    if done.returncode:
        raise RuntimeError(f"{words[0]} has failed ({done.returncode}): {done.stderr.strip()[-1000:]}")
    return done.stdout


def seconds_of(text):
    """What qemu-img says of a run's duration."""
    found = re.search(r"Run completed in ([0-9.]+) seconds", text)
    if not found:
        raise RuntimeError(f"qemu-img has not said how long it took: {text[-200:]!r}")
    return float(found[1])


def by_qemu(uri):
    """QEMU's client, through strides over the whole disk."""

    def bench(case, count, within_s):
        words = ["qemu-img", "bench", "-f", "raw", "-t", "none", "-c", count, "-d", case.depth]
        words += ["-s", BLOCK, "-S", STRIDE]
        words += ["-w", "--pattern=165"] if case.operation == "write" else []
        return seconds_of(output([*words, uri], within_s))

    def run(case, secs):
        rate = FEW / bench(case, FEW, GRACE_S)
        count = max(FEW, int(rate * secs))
        return FEW + count, FEW / rate + bench(case, count, secs * 10 + GRACE_S)

    return run


def by_load(protocol, address, size, name=""):
    """The client of tools/load."""

    def run(case, secs):
        words = [os.environ["AZEKURA_LOAD"], protocol, address, "--name", name, "--operation", case.operation]
        words += ["--depth", case.depth, "--size", size, "--secs", secs]
        said = json.loads(output(words, secs + GRACE_S))
        return said["requests"], said["seconds"]

    return run


class StorageDaemon:
    """qemu-storage-daemon with a raw file behind a vhost-user socket, with direct I/O by io_uring."""

    def __init__(self, folder, size):
        self.folder, self.socket = Path(folder) / "qemu-storage-daemon", Path(folder) / "qsd.sock"
        self.file, self.size, self.process = self.folder / "disk.raw", size, None

    def start(self):
        self.folder.mkdir(parents=True)
        with open(self.file, "wb") as file:
            file.truncate(self.size)
        disk = f"driver=file,node-name=disk,filename={self.file},cache.direct=on,aio=io_uring"
        export = f"type=vhost-user-blk,id=export,node-name=disk,writable=on,addr.type=unix,addr.path={self.socket}"
        command = ["qemu-storage-daemon", "--blockdev", disk, "--export", export]
        self.process = Process(command, self.folder / "log")
        wait_until(self.listens, 20, "qemu-storage-daemon's socket")

    def listens(self):
        assert self.process.alive, f"qemu-storage-daemon ended\n{self.process.log_tail()}"
        return self.socket.exists()

    def stop(self):
        if self.process is not None and self.process.alive:
            self.process.stop()


class Doors:
    """A cluster whose first node has all doors, and the peers."""

    def __init__(self, options, folder):
        self.size = parse_size(options.size)
        self.target = (Attached if options.attached else Azekura).asked_for(folder, options, self.size)
        self.iscsi, self.nvme = (f"{HOST}:{free_port()}" for _ in range(2))
        self.vhost = Path(folder) / "vol1.sock"
        first = self.target.cluster.first
        doors = ["--iscsi", self.iscsi, "--nvme", self.nvme, "--nvme-discovery", f"{HOST}:{free_port()}"]
        first.options = [*first.options, *doors, "--vhost-socket", f"{VOLUME}={self.vhost}"]
        self.tgt, self.file = TgtServer(folder), Path(folder) / "tgt.raw"
        self.daemon = StorageDaemon(folder, self.size)
        self.folder = folder

    def start(self):
        """Everything is filled once, and read once, as the nine tests' targets are."""
        for one in (self.target, self.tgt, self.daemon):
            one.start()
        with open(self.file, "wb") as file:
            file.truncate(self.size)
        self.tgt.add(1, self.file)
        for path in (self.file, self.daemon.file):
            self._fill(["--ioengine=libaio", f"--filename={path}"])
        self._fill(self.target.engine())

    def _fill(self, engine):
        for test in (FILL, READ_ONCE):
            fio.run(fio.command(engine, self.size, test), folder=self.folder)

    def sides(self, door):
        """Ours, and the peer's."""
        nodes, size = self.target.processes, self.size
        nbd = self.target.cluster.first
        pairs = {
            "iscsi": (
                Side("azekura", by_qemu(f"iscsi://{self.iscsi}/{IQN}{VOLUME}/0"), nodes),
                Side("tgt", by_qemu(self.tgt.uri(1)), lambda: [self.tgt.process]),
            ),
            "vhost": (
                Side("azekura", by_load("vhost", self.vhost, size), nodes),
                Side("qemu-storage-daemon", by_load("vhost", self.daemon.socket, size), lambda: [self.daemon.process]),
            ),
            "nvme": (
                Side("azekura", by_load("nvme", self.nvme, size, SUBSYSTEM + VOLUME), nodes),
                Side("azekura, NBD", by_load("nbd", f"{nbd.host}:{nbd.nbd_port}", size, VOLUME), nodes),
            ),
        }
        return pairs[door]

    def stop(self):
        for one in (self.target, self.tgt, self.daemon):
            one.stop()


def rows(turns):
    """One row a case: medians of both sides and of the ratios. `turns`: (case, ours, peer's, title)."""
    table = []
    for case in CASES:
        mine = [(ours, peers, title) for of, ours, peers, title in turns if of == case]
        if not mine:
            continue
        ratios = [ours[case.of] / peers[case.of] for ours, peers, _ in mine]
        middle = {
            side: {of: median(turn[number][of] for turn in mine) for of in ("rate", "cpu")}
            for number, side in enumerate(("ours", "peer"))
        }
        ratio = median(ratios)
        spread = {"ratio": ratio, "least": min(ratios), "most": max(ratios)}
        table.append({"case": case, "peer_title": mine[0][2], **spread, **middle})
    return table


def markdown(table):
    head = ["test", "requests a second", "CPU µs", "peer", "requests a second", "CPU µs"]
    head += ["compared", "ratio", "least to most", "goal"]
    lines = [f"| {' | '.join(head)} |", "|---|---:|---:|---|---:|---:|---|---:|---:|---:|"]
    for row in table:
        case, ours, peer = row["case"], row["ours"], row["peer"]
        cells = [case.name, f"{ours['rate']:,.0f}", f"{ours['cpu']:.1f}", row["peer_title"]]
        cells += [f"{peer['rate']:,.0f}", f"{peer['cpu']:.1f}", "rate" if case.of == "rate" else "CPU"]
        limit = f"{case.goal:g}" if case.of == "rate" else f"at most {case.goal:g}"
        cells += [f"{row['ratio']:.2f}", f"{row['least']:.2f} to {row['most']:.2f}", limit]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figures(table):
    """The cells of docs/performance.md."""
    found = {}
    for row in table:
        case, ratio = row["case"], row["ratio"]
        found[f"door_{case.name}"] = f"{ratio:.2f}: {yes(case.reached(ratio))}"
    return found


def run(options, folder, progress):
    cases = [case for case in CASES if re.search(options.only, case.name)]
    doors, turns = Doors(options, folder), []
    try:
        progress(f"starting, and filling {options.size} three times")
        doors.start()
        for number in range(options.rounds):
            for place, case in enumerate(cases):
                ours, peer = doors.sides(case.door)
                order = (ours, peer) if (number + place) % 2 == 0 else (peer, ours)
                measured = {side.title: side.measure(case, options.secs) for side in order}
                for side in order:
                    had = measured[side.title]
                    progress(f"{case.name:18} {side.title:20} {had['rate']:10,.0f} {had['cpu']:8.1f} µs")
                turns.append((case, measured[ours.title], measured[peer.title], peer.title))
    finally:
        doors.stop()
    table = rows(turns)
    text = markdown(table)
    print(text)
    return {
        # The goals are those of a volume as it comes.
        "part": "doors_attached" if options.attached else "doors",
        "markdown": text,
        "figures": {} if options.attached else figures(table),
        "turns": [{"test": case.name, "ours": ours, "peer": peer, "of": title} for case, ours, peer, title in turns],
    }
