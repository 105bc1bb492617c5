"""The figures of docs/reliability.md: pauses of clients, what a returning copy costs. Markdown between markers."""

import math
import random
import time
from collections import Counter

from tools.harness.acked_writer import BLOCK, Ledger, content
from tools.harness.document import circumstances
from tools.harness.nbd import CMD_WRITE, Client
from tools.harness.process import wait_until

from .torment import say
from .workloads import LedgerClient

BLOCKS, STRIDE = 1500, 43
VOLUME_SIZE = "256MiB"
WATCH_S = 4.0
# The same where a machine is gone without a word.
MACHINE_WATCH_S = 10.0
CHANGED_BLOCKS = 8000
QUIET_S = 10
RESTART_AFTER_S = 3
REPETITIONS_MAX = 40


def percentile(values, share):
    """The smallest value that at least this share of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Series:
    """One figure: pauses in seconds, its goal, and what went wrong."""

    def __init__(self, title, goal_s):
        self.title, self.goal_s = title, goal_s
        self.pauses, self.io_errors, self.lost, self.acks = [], 0, 0, 0

    def cell(self):
        """The figure alone, with the errors that clients saw and the writes that are missing if there are any."""
        bad = f", {self.io_errors} I/O errors, {self.lost} lost writes" if self.io_errors or self.lost else ""
        return f"{percentile(self.pauses, 0.99):.2f} s{bad}"

    def row(self):
        if not self.pauses:
            return f"| {self.title} | 0 | | | | | | |"
        p50, p99, worst = (percentile(self.pauses, share) for share in (0.5, 0.99, 1))
        goal = "" if self.goal_s is None else f"≤ {self.goal_s} s: {'yes' if p99 <= self.goal_s else '**no**'}"
        return (
            f"| {self.title} | {len(self.pauses)} | {p50:.2f} | {p99:.2f} | {worst:.2f} | {goal} "
            f"| {self.io_errors} | {self.lost} of {self.acks} |"
        )


class Figures:
    """All measurements on one rig of three nodes."""

    def __init__(self, rig, seed, minutes):
        self.rig, self.seconds = rig, minutes * 60
        self.random = random.Random(seed)
        self.series = []
        self.resync = []
        self.failures = []

    def run(self, wanted=()):
        """Measures the figures that are wanted, or all; yields the name and the Markdown of each."""
        self.rig.create_volume("two", VOLUME_SIZE, copies=2)
        self.rig.create_volume("three", VOLUME_SIZE, copies=3)
        plan = {
            "primary": (self.primary, 0.2),
            "machine": (self.machine, 0.25),
            "secondary": (self.secondary, 0.1),
            "gateway": (self.gateway, 0.2),
            "restart": (self.planned, 0.15),
            "resync": (self.returning, 0.1),
        }
        for name, (measure, share) in plan.items():
            if not wanted or name in wanted:
                self.series, self.resync = [], []
                measure(time.monotonic() + self.seconds * share)
                yield name, self.markdown()

    def writer(self, uris, volume, seed):
        ledger = Ledger(BLOCKS, 0, STRIDE)
        # Blocks hold what an earlier series wrote; a new ledger knows versions from zero on only.
        with Client(uris[0]) as client:
            client.trim(0, client.size)
        writer = LedgerClient(volume, uris, ledger, seed, depth=16, rate=400, read_share=0)
        writer.start()
        wait_until(lambda: writer.done > 500 or not writer.is_alive(), 120, "the first writes")
        return writer

    def groups(self, copies):
        return [group for group in self.rig.json("group", "list") if len(group["in_sync"]) == copies]

    def primaries(self, copies):
        """Node's number → groups that it is primary of."""
        nodes = {device["id"]: device["node"] for device in self.rig.json("device", "list")}
        return Counter(nodes[group["primary"]] for group in self.groups(copies))

    def end(self, series, writer):
        """Stops the writer and checks its ledger on every node."""
        writer.finish()
        series.io_errors += len(writer.io_errors)
        self.failures += writer.faults + writer.io_errors
        series.acks += writer.ledger.acks
        for node in self.rig.nodes:
            lost = writer.ledger.check(node.uri(writer.name))
            series.lost += len(lost)
            self.failures += lost[:3]

    def kills(self, series, writer, deadline, nodes, copies, fits):
        """Kills a node of which the number of groups that it is primary of fits, watches the writer, lets it return.

        It does so until the time is over, and takes another node than the last time if possible.
        """
        last = None

        def fitting():
            primaries = self.primaries(copies)
            found = [node for node in nodes if fits(primaries[node.number])]
            return sorted(found, key=lambda node: node is last)

        while len(series.pauses) < 2 or (time.monotonic() < deadline and len(series.pauses) < REPETITIONS_MAX):
            last = wait_until(fitting, 60, f"a node to kill ({series.title})")[0]
            self.kill_once(series, writer, last)

    def kill_once(self, series, writer, node):
        writer.take_pause()
        node.kill()
        time.sleep(WATCH_S)
        before = writer.done
        node.start()
        self.rig.wait_healthy()
        wait_until(lambda: writer.done > before + 50, 60, "writes after the return")
        series.pauses.append(writer.take_pause())
        say(f"{series.title}: {node.name} killed, {series.pauses[-1]:.2f} s")

    def primary(self, deadline):
        """The writer is on n1; n2 and n3 are the primaries of groups of which n1 has no copy."""
        series = self.new_series("SIGKILL of a node with primaries", 3)
        n1, *others = self.rig.nodes
        writer = self.writer([n1.uri("two")], "two", 1)
        self.kills(series, writer, deadline, others, 2, lambda primaries: primaries > 0)
        self.end(series, writer)

    def machine(self, deadline):
        """The writer is on n2; m1 or m3 ends, of which nobody is told, with a node and a member of etcd."""
        n1, n2, n3 = self.rig.nodes
        begun = time.monotonic()
        for share, leads in ((0.5, False), (1, True)):
            series = self.new_series(f"A machine's end, {'with' if leads else 'without'} etcd's leader", 3)
            writer = self.writer([n2.uri("two")], "two", 6 + leads)
            end = begun + (deadline - begun) * share
            while len(series.pauses) < 2 or (time.monotonic() < end and len(series.pauses) < REPETITIONS_MAX):
                victim = wait_until(lambda: self.with_primaries(n1, n3), 60, "a node with primaries")
                other = n3 if victim is n1 else n1
                self.rig.let_lead(self.rig.member_at(victim if leads else other))
                self.machine_ends(series, writer, victim)
            self.end(series, writer)

    def with_primaries(self, *nodes):
        """The one of these nodes that is primary of the most groups; None: none is of any."""
        primaries = self.primaries(2)
        most = max(nodes, key=lambda node: primaries[node.number])
        return most if primaries[most.number] else None

    def machine_ends(self, series, writer, node):
        member = self.rig.member_at(node)
        writer.take_pause()
        node.machine.unplug()
        node.kill()
        member.process.kill()
        time.sleep(MACHINE_WATCH_S)
        before = writer.done
        node.machine.plug()
        member.start()
        node.start()
        self.rig.wait_healthy()
        wait_until(lambda: writer.done > before + 50, 60, "writes after the return")
        series.pauses.append(writer.take_pause())
        say(f"{series.title}: {node.machine.name} died, {series.pauses[-1]:.2f} s")

    def secondary(self, deadline):
        """Three copies: n1 becomes the primary of all groups, because it does all the writing."""
        series = self.new_series("SIGKILL of a node with secondaries only", 1.5)
        n1, *others = self.rig.nodes
        writer = self.writer([n1.uri("three")], "three", 2)
        self.kills(series, writer, deadline, others, 3, lambda primaries: primaries == 0)
        self.end(series, writer)

    def gateway(self, deadline):
        """The node that the client is connected to dies; the client goes to the next one."""
        series = self.new_series("SIGKILL of the gateway's node, client reconnects elsewhere", 3)
        nodes = self.rig.nodes
        writer = self.writer([node.uri("two") for node in nodes], "two", 3)
        while len(series.pauses) < 2 or (time.monotonic() < deadline and len(series.pauses) < REPETITIONS_MAX):
            node = next(node for node in nodes if node.uri("two") == writer.uris[0])
            self.kill_once(series, writer, node)
        self.end(series, writer)

    def planned(self, deadline):
        """SIGTERM to each node in turn: those that the client is not connected to, and the one that it is."""
        others = self.new_series("Planned restart of another node", 1)
        own = self.new_series("Planned restart of the gateway's node, client reconnects elsewhere", 1)
        n1, *rest = nodes = self.rig.nodes
        writer = self.writer([n1.uri("two")], "two", 4)
        half = (deadline + time.monotonic()) / 2
        while len(others.pauses) < 4 or (time.monotonic() < half and len(others.pauses) < REPETITIONS_MAX):
            self.restart(others, writer, rest[len(others.pauses) % len(rest)])
        self.end(others, writer)
        writer = self.writer([node.uri("two") for node in nodes], "two", 5)
        while len(own.pauses) < 3 or (time.monotonic() < deadline and len(own.pauses) < REPETITIONS_MAX):
            self.restart(own, writer, next(node for node in nodes if node.uri("two") == writer.uris[0]))
        self.end(own, writer)

    def restart(self, series, writer, node):
        writer.take_pause()
        node.stop()
        time.sleep(RESTART_AFTER_S)
        stop, before = writer.take_pause(), writer.done
        node.start()
        self.rig.wait_healthy()
        wait_until(lambda: writer.done > before + 50, 60, "writes after the return")
        back = writer.take_pause()
        series.pauses.append(max(stop, back))
        say(f"{series.title}: {node.name}, {stop:.2f} s at the stop, {back:.2f} s at the return")

    def returning(self, deadline):
        """n3 is away while random blocks of a full volume of three copies are written."""
        n1, _, n3 = self.rig.nodes
        while len(self.resync) < 2 or time.monotonic() < deadline:
            version = 1000 + len(self.resync)
            blocks = list(range(mib_blocks(VOLUME_SIZE)))
            if not self.resync:
                self.write(n1.uri("three"), blocks, 999)
            n3.kill()
            changed = sorted(self.random.sample(blocks, CHANGED_BLOCKS))
            self.write(n1.uri("three"), changed, version)
            received, sent = n3.machine.bytes_on_the_wire()
            began = time.monotonic()
            n3.start()
            self.rig.wait_healthy()
            took = time.monotonic() - began
            received2, sent2 = n3.machine.bytes_on_the_wire()
            time.sleep(QUIET_S)
            received3, sent3 = n3.machine.bytes_on_the_wire()
            quiet = (received3 - received2) / QUIET_S
            quiet_sent = (sent3 - sent2) / QUIET_S
            net, net_sent = received2 - received - quiet * took, sent2 - sent - quiet_sent * took
            self.resync.append((CHANGED_BLOCKS * BLOCK, received2 - received, net, net_sent, took))
            say(f"resync: {self.resync[-1]}, ratio {net / CHANGED_BLOCKS / BLOCK:.3f}")
            with Client(n3.uri("three")) as client:
                for block in self.random.sample(changed, 500):
                    if client.read(block * BLOCK, BLOCK) != content(block, version):
                        self.failures.append(f"block {block} is not what was written while n3 was away")

    def write(self, uri, blocks, version):
        with Client(uri) as client:
            left, under_way = iter(blocks), 0
            while True:
                while under_way < 64 and (block := next(left, None)) is not None:
                    client.send(CMD_WRITE, block * BLOCK, data=content(block, version))
                    under_way += 1
                if not under_way:
                    return
                _, error, _ = client.receive()
                assert not error, f"write error {error}"
                under_way -= 1

    def new_series(self, title, goal_s):
        self.series.append(Series(title, goal_s))
        return self.series[-1]

    def cells(self, name):
        """What was measured last, for the table that the document begins with."""
        if name == "resync":
            return {name: f"{max(net / changed for changed, _, net, _, _ in self.resync):.3f}"}
        names = [name] if len(self.series) == 1 else [f"{name} {number}" for number in range(1, len(self.series) + 1)]
        return {name: series.cell() for name, series in zip(names, self.series, strict=True)}

    def markdown(self):
        """What was measured last."""
        lines = [circumstances(len(self.rig.nodes)), ""]
        if self.series:
            lines += [
                "| Event | Times | p50, s | p99, s | max, s | Goal for p99 | I/O errors | Lost writes |",
                "|---|---:|---:|---:|---:|---|---:|---:|",
                *[series.row() for series in self.series],
            ]
        else:
            lines += [
                "| Changed while away, MiB | Received, MiB | Without heartbeats, MiB | Ratio to changed "
                "| Sent, MiB | Took, s |",
                "|---:|---:|---:|---:|---:|---:|",
            ]
        for changed, received, net, sent, took in self.resync:
            values = [changed / 2**20, received / 2**20, net / 2**20]
            cells = [f"{value:.1f}" for value in values] + [
                f"{net / changed:.3f}",
                f"{sent / 2**20:.1f}",
                f"{took:.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def mib_blocks(size):
    return int(size.removesuffix("MiB")) * 2**20 // BLOCK
