"""What snapshots cost: a volume with a thousand of them beside one with none, and protection every ten seconds."""

import re
import statistics
import subprocess
import time

from tools.harness.process import wait_until

from . import fio
from .plan import FILL, SNAPSHOTS_RATIO_MIN
from .report import yes
from .targets import Azekura

PLAIN, CHAIN, BUSY = "plain", "chain", "busy"
# Writes to both volumes while snapshots of one are made, a second.
BETWEEN_IOPS = 500
PROTECT = ("--every", "10s", "--keep", "30s")
PROTECTED_S = 60
CHAIN_TESTS = {
    "randread_q128": "--rw=randread --bs=4k --iodepth=128",
    "randread_q1": "--rw=randread --bs=4k --iodepth=1",
    "read_4M": "--rw=read --bs=4M --iodepth=16",
    "randwrite_q128": "--rw=randwrite --bs=4k --iodepth=128",
}
RANDOM_WRITES = CHAIN_TESTS["randwrite_q128"]


class Bench:
    """A cluster, what was measured on it, and the options of the command line."""

    def __init__(self, options, folder, progress):
        self.options, self.folder, self.progress = options, folder, progress
        target = Azekura.asked_for(folder, options, options.size)
        self.target, self.cluster = target, target.cluster

    def engine(self, volume):
        return ["--ioengine=nbd", f"--uri={self.cluster.first.uri(volume)}"]

    def fill(self, volume):
        self.progress(f"{volume}: filling {self.options.size}")
        fio.run(fio.command(self.engine(volume), self.options.size, FILL), folder=self.folder)

    def measure(self, volume, test, seconds):
        """Requests a second, and the servers' processor time for each in µs."""
        words = fio.command(self.engine(volume), self.options.size, test.split(), seconds)
        cpu_before = self.target.cpu_seconds()
        measured = fio.measure(fio.run(words, seconds, self.folder))
        return measured.iops, (self.target.cpu_seconds() - cpu_before) * 1e6 / measured.requests

    def snapshots(self, volume):
        return len(self.cluster.json("snapshot", "list", volume))

    def make_chain(self):
        """Snapshots one after the other, while both volumes are written to. Returns the seconds that each took."""
        words = {
            volume: fio.command(self.engine(volume), self.options.size, RANDOM_WRITES.split(), 24 * 3600)
            for volume in (PLAIN, CHAIN)
        }
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder}
        writers = [subprocess.Popen([*line, f"--rate_iops={BETWEEN_IOPS}"], **quiet) for line in words.values()]
        took = []
        try:
            for number in range(1, self.options.snapshots + 1):
                began = time.monotonic()
                self.cluster.cli("snapshot", "create", f"{CHAIN}@s{number}")
                took.append(time.monotonic() - began)
                if number % 100 == 0:
                    self.progress(f"{CHAIN}: {number} snapshots")
            if any(writer.poll() is not None for writer in writers):
                raise fio.FioError("a writer ended while snapshots were made")
        finally:
            for writer in writers:
                writer.terminate()
                writer.wait()
        return took

    def beside(self, rounds, measure):
        """`measure` of both kinds turn by turn. Returns the median of the turns' ratios, and all that was measured."""
        results = {PLAIN: [], CHAIN: []}
        for number in range(rounds):
            for kind in (PLAIN, CHAIN) if number % 2 == 0 else (CHAIN, PLAIN):
                results[kind].append(measure(kind))
        turns = zip(results[PLAIN], results[CHAIN])
        return statistics.median(chain[0] / plain[0] for plain, chain in turns), results

    def first_reads(self, kind):
        """One pass over the volume by nodes that have just started: nothing of its map is in memory."""
        for node in self.cluster.nodes:
            node.stop()
            node.start()
            self.cluster.wait_healthy()
        words = fio.command(self.engine(kind), self.options.size, "--rw=read --bs=64k --iodepth=16".split())
        measured = fio.measure(fio.run(words, folder=self.folder))
        return measured.iops, None

    def protected(self, kind):
        """Random writes for a minute with protection and without; in between, what was kept is deleted."""
        if kind == CHAIN:
            self.cluster.cli("volume", "protect", BUSY, *PROTECT)
        result = self.measure(BUSY, RANDOM_WRITES, PROTECTED_S)
        if kind == CHAIN:
            made = self.snapshots(BUSY)
            self.cluster.cli("volume", "protect", BUSY, "--off")
            for snapshot in self.cluster.json("snapshot", "list", BUSY):
                self.cluster.cli("snapshot", "delete", f"{BUSY}@{snapshot['name']}")
            self.progress(f"protection kept {made} snapshots; waiting until their layers are gone")
            wait_until(self.at_rest, 600, "the end of deleted snapshots' layers")
        return result

    def at_rest(self):
        used = self.cluster.used_bytes()
        time.sleep(5)
        return used == self.cluster.used_bytes()


def median(values):
    """The median; None where nothing was measured."""
    return None if None in values else statistics.median(values)


def markdown(lines, each_ms):
    """The tests as a table, with the time that a snapshot took."""
    text = [
        "| test | without, a second | with, a second | CPU µs, without | with | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, plain, chain, ratio in lines:
        cpu = " | ".join("" if us is None else f"{us:.1f}" for us in (plain[1], chain[1]))
        text.append(f"| {name} | {plain[0]:,.0f} | {chain[0]:,.0f} | {cpu} | {ratio:.2f} |")
    return "\n".join([*text, "", f"One snapshot took {each_ms:.0f} ms (median, the command's own start included)."])


def figures(lines, snapshots):
    """The least ratio of the tests if there were a thousand snapshots, and that of protection."""
    ratios = {name: ratio for name, _, _, ratio in lines}
    chain = [ratio for name, ratio in ratios.items() if name in CHAIN_TESTS]
    found = {"snapshots": min(chain)} if len(chain) == len(CHAIN_TESTS) and snapshots >= 1000 else {}
    found |= {"protect": ratios["protect"]} if "protect" in ratios else {}
    return {name: f"{ratio:.2f}: {yes(ratio >= SNAPSHOTS_RATIO_MIN)}" for name, ratio in found.items()}


def run(options, folder, progress):
    bench = Bench(options, folder, progress)
    lines, result = [], {}

    def judge(name, ratio, measured):
        medians = {kind: [median(values) for values in zip(*runs)] for kind, runs in measured.items()}
        lines.append((name, medians[PLAIN], medians[CHAIN], ratio))
        result[name] = {"ratio": ratio, "runs": measured, "reached": ratio >= SNAPSHOTS_RATIO_MIN}
        progress(f"{name}: {ratio:.3f}")

    try:
        bench.target.start()
        bench.cluster.delete_volume("vol1")
        for volume in (BUSY, PLAIN, CHAIN):
            bench.cluster.create_volume(volume, options.size)
            bench.fill(volume)
        if re.search(options.only, "protect"):
            judge("protect", *bench.beside(options.rounds, bench.protected))
        bench.cluster.delete_volume(BUSY)
        took = bench.make_chain()
        if re.search(options.only, "first_reads"):
            judge("first_reads", *bench.beside(min(options.rounds, 3), bench.first_reads))
        for name, test in CHAIN_TESTS.items():
            if re.search(options.only, name):
                judge(name, *bench.beside(options.rounds, lambda kind: bench.measure(kind, test, options.secs)))
        resident = [value / 2**20 for value in bench.target.resident_bytes()]
    finally:
        bench.target.stop()
    each_ms = statistics.median(took) * 1000
    print(f"{options.snapshots} snapshots, each in {each_ms:.0f} ms (median, with the command's own start)")
    head = f"{'test':16} {'without /s':>12} {'with /s':>12} {'µs CPU':>8} {'µs CPU':>8} {'ratio':>6}"
    print(f"{head}  reached ({SNAPSHOTS_RATIO_MIN})")
    for name, plain, chain, ratio in lines:
        reached = "yes" if ratio >= SNAPSHOTS_RATIO_MIN else "no"
        cpu = " ".join(f"{'-' if us is None else f'{us:.1f}':>8}" for us in (plain[1], chain[1]))
        print(f"{name:16} {plain[0]:12,.0f} {chain[0]:12,.0f} {cpu} {ratio:6.3f}  {reached}")
    print(f"resident MiB a node: {', '.join(f'{mib:.0f}' for mib in resident)}")
    written = {"markdown": markdown(lines, each_ms), "figures": figures(lines, options.snapshots)}
    return {**written, "snapshots": options.snapshots, "seconds_each": took, "resident_mib": resident, **result}
