"""One node with many devices beside one with few: the same volume, the same disk."""

import time
from pathlib import Path
from statistics import median

from tools.harness.cluster import Cluster
from tools.harness.process import wait_until

from . import turns
from .plan import DEVICES_RATE_MIN, TESTS
from .report import beside, yes
from .targets import VOLUME, Azekura

FEW, MANY = 3, 50
# Of each device, MiB: cleaning is not the subject.
SIZES_MIB = {FEW: 4096, MANY: 512}
MEASURED = ("randwrite_q128", "randread_q128")
SETTLE_S, WATCH_S = 15, 20
MIB = 2**20


class Devices(Azekura):
    """One node with so many devices, files on one disk; the two copies of a block are on two of them."""

    def __init__(self, folder, options, count):
        self.name, self.count = f"{count} devices", count
        self.cluster = Cluster(
            Path(folder) / f"devices-{count}",
            nodes=1,
            device_size=f"{SIZES_MIB[count]}MiB",
            node_options=["--devices", count],
        )
        self.volume_size = options.volume_size

    def make_volume(self):
        cli = self.cluster.cli
        cli("class", "create", "one-machine", "--copies", 2, "--failure-domain", "device")
        cli("class", "set", "one-machine", "--overcommit", 64, "--io-timeout", "never")
        cli("volume", "create", VOLUME, self.volume_size, "--class", "one-machine")
        self.cluster.wait_healthy()

    def start(self):
        self.cluster.start()
        wait_until(self.has_all_devices, 300, "all devices")
        self.make_volume()
        wait_until(self.devices_initialised, 1800, "the devices' first writing")

    def has_all_devices(self):
        return len(self.cluster.json("device", "list")) == self.count

    def restart_s(self):
        """From the start of the killed node until the cluster is healthy, s."""
        self.cluster.first.kill()
        began = time.monotonic()
        self.cluster.first.start()
        self.cluster.wait_healthy()
        return time.monotonic() - began

    def at_rest(self):
        """The node's share of a core, and its memory in MiB, when nobody asks anything of it."""
        time.sleep(SETTLE_S)
        before, began = self.cpu_seconds(), time.monotonic()
        time.sleep(WATCH_S)
        share = (self.cpu_seconds() - before) / (time.monotonic() - began)
        return share, sum(self.resident_bytes()) / MIB


def tests():
    return [test for test in TESTS if test.name in MEASURED]


def figures(table):
    """The cells of docs/performance.md. `table`: the ratios of many devices to few."""
    rates = {row["test"]: row["rate"] for row in table}
    return {f"devices_{test}": f"{rate:.2f}: {yes(rate >= DEVICES_RATE_MIN)}" for test, rate in rates.items()}


def markdown(table, seen):
    """`seen`: of each target, by its name, the seconds of its restarts, and what it takes at rest."""
    lines = turns.table("beside", {f"{FEW} devices": table})
    lines += ["", "| node | again healthy after it was killed, s | share of a core at rest | resident at rest |"]
    lines += ["|---|---:|---:|---:|"]
    for name, (restarts, share, mib) in seen.items():
        lines.append(f"| {name} | {median(restarts):.1f} | {share * 100:.2f} % | {mib:.0f} MiB |")
    return "\n".join(lines)


def run(options, folder, progress):
    few, many = (Devices(folder, options, count) for count in (FEW, MANY))
    seen = {}
    try:
        for target in (few, many):
            turns.fill(target, options, folder, progress)
        runs = turns.take([few, many], tests(), options, folder, progress)
        for target in (few, many):
            restarts = [target.restart_s() for _ in range(options.rounds)]
            seen[target.name] = (restarts, *target.at_rest())
            progress(f"{target.name}: healthy after {median(restarts):.1f} s, {seen[target.name][2]:.0f} MiB")
    finally:
        for target in (few, many):
            target.stop()
    table = beside(tests(), runs, (many.name, few.name))
    shown = markdown(table, seen)
    print(shown)
    return {"markdown": shown, "figures": figures(table), "ratios": table, "seen": seen}
