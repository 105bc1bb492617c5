"""The torment itself: workloads, faults from a seed until the time is over, then the verdict."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from tools.harness.acked_writer import Ledger

from . import faults, registers
from .workloads import LedgerClient, RegisterClient, histories

WRITERS = 3
LEDGER_BLOCKS, LEDGER_STRIDE = 2000, 90
# The volume whose class wants both copies, and how its blocks lie.
BOTH, BOTH_BLOCKS, BOTH_STRIDE = "both", 1000, 90
# The blocks of registers lie behind those of the ledgers, in different chunks.
REGISTER_BLOCKS = [200_000 + 4096 * index for index in range(6)]
# After the last fault is mended: how soon every workload must have gone on, and the cluster be healthy.
PROGRESS_WITHIN_S = 60
HEALTHY_WITHIN_S = 180
SOON_HEALTHY_S = 12
# A fault comes on top of the last one, without waiting for health, this often.
OVERLAP = 0.4
NEVER_OVERLAP = {"kill_all", "kill_two", "etcd_quorum"}


@dataclass
class Outcome:
    """What happened: faults by kind, and everything that must not have happened."""

    injected: Counter = field(default_factory=Counter)
    problems: list = field(default_factory=list)
    worst_pause: dict = field(default_factory=dict)

    def problem(self, text):
        say(f"PROBLEM {text}")
        self.problems.append(text)


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Torment:
    """One run on a started rig. `extra` are more workloads (fio, PostgreSQL) with `start`, `done`, `finish`, `name`."""

    def __init__(self, rig, seed, extra=(), kinds=None):
        self.rig, self.extra, self.kinds = rig, list(extra), kinds
        self.random = random.Random(seed)
        self.seed = seed
        self.outcome = Outcome()
        self._make_clients()

    def _make_clients(self):
        nodes = self.rig.nodes
        self.writers, self.registers = [], []
        for number in range(WRITERS):
            # Over TCP a client is another machine's; over the unix socket it shares the fate of the node's machine.
            order = nodes[number % len(nodes) :] + nodes[: number % len(nodes)]
            uris = [node.uri(tcp=number == 1) for node in order]
            ledger = Ledger(LEDGER_BLOCKS, number, LEDGER_STRIDE)
            self.writers.append(LedgerClient(f"writer{number}", uris, ledger, self.seed + number))
        uris = [node.uri(BOTH) for node in nodes]
        ledger = Ledger(BOTH_BLOCKS, 0, BOTH_STRIDE)
        self.both = LedgerClient("writer of two copies", uris, ledger, self.seed + WRITERS)
        for number in range(1, len(nodes) + 1):
            uris = [other.uri(tcp=number == 2) for other in nodes]
            uris.insert(0, uris.pop(number - 1))
            self.registers.append(
                RegisterClient(f"register{number}", number, uris, REGISTER_BLOCKS, self.seed + 10 + number)
            )

    @property
    def workloads(self):
        return [*self.writers, self.both, *self.registers, *self.extra]

    def run(self, seconds, plan=None):
        """Torments for so long, or with each of the plan's faults once; the verdict is in `outcome`."""
        for workload in self.workloads:
            workload.start()
        self.wait_progress("at the start")
        deadline = time.monotonic() + seconds
        for kind in plan or ():
            self.one_round([kind])
        while plan is None and time.monotonic() < deadline and not self.has_failed():
            self.one_round(self.draw_round())
        self.judge()
        return self.outcome

    def has_failed(self):
        return len(self.outcome.problems) >= 20

    def draw_round(self):
        kinds = [faults.draw_kind(self.random, self.kinds)]
        while self.random.random() < OVERLAP and len(kinds) < 3 and kinds[0] not in NEVER_OVERLAP:
            kinds.append(faults.draw_kind(self.random, set(self.kinds or faults.CATALOGUE) - NEVER_OVERLAP))
        return kinds

    def one_round(self, kinds):
        """One fault, or several of which each comes before the last is mended; then everything must become well."""
        present = []
        for workload in self.writers + self.registers:
            workload.take_pause()
        try:
            for kind in kinds:
                try:
                    fault = faults.inject(kind, self.rig, self.random)
                except (IndexError, ValueError):
                    # Nobody is left who could be hit.
                    continue
                present.append(fault)
                self.outcome.injected[kind] += 1
                seconds = faults.duration(self.random)
                say(f"{sum(self.outcome.injected.values()):4} {kind} {fault.target} {seconds:.1f} s")
                time.sleep(seconds / len(kinds))
        except (RuntimeError, AssertionError) as error:
            self.outcome.problem(str(error))
        finally:
            for fault in present:
                fault.undo()
        mended = time.monotonic()
        self.wait_progress("after " + "+".join(f"{fault.kind} {fault.target}" for fault in present))
        self.wait_healthy(present)
        pause = max(workload.take_pause() for workload in self.writers + self.registers)
        say(f"     all is well {time.monotonic() - mended:.1f} s later, longest pause {pause:.1f} s")
        if len(present) == 1:
            kind = present[0].kind
            self.outcome.worst_pause[kind] = max(pause, self.outcome.worst_pause.get(kind, 0))

    def wait_progress(self, when):
        goals = {workload.name: workload.done + 5 for workload in self.workloads}
        deadline = time.monotonic() + PROGRESS_WITHIN_S
        behind = self.workloads
        while behind and time.monotonic() < deadline:
            time.sleep(0.1)
            behind = [workload for workload in behind if workload.done < goals[workload.name]]
        for node in self.rig.nodes:
            if not node.alive:
                self.outcome.problem(f"{node.name} ended by itself {when}: {node.process.log_tail(5)}")
                node.start()
        for workload in behind:
            self.outcome.problem(f"{workload.name} did nothing in {PROGRESS_WITHIN_S} s {when}; {workload.asking()}")
        self.collect()

    def wait_healthy(self, present):
        try:
            try:
                self.rig.wait_healthy(SOON_HEALTHY_S)
            except TimeoutError as error:
                # Not wrong yet, but worth knowing why.
                say("     not healthy yet: " + " / ".join(str(error).splitlines()[1:7]))
                self.rig.wait_healthy(HEALTHY_WITHIN_S)
        except (TimeoutError, AssertionError) as error:
            names = "+".join(f"{fault.kind} {fault.target}" for fault in present)
            self.outcome.problem(f"not healthy after {names}: {str(error)[:1500]}")

    def collect(self):
        """Takes over what the workloads have found."""
        for workload in self.workloads:
            for text in [*workload.faults, *workload.io_errors]:
                self.outcome.problem(text)
            workload.faults, workload.io_errors = [], []

    def judge(self):
        say("the faults are over; checking everything")
        for workload in self.workloads:
            try:
                workload.finish()
            except Exception as error:  # noqa: BLE001 - whatever a workload died of is a finding
                self.outcome.problem(f"{workload.name}: {error!r}")
        self.collect()
        for writer, volume in [*((writer, "vol1") for writer in self.writers), (self.both, BOTH)]:
            for node in self.rig.nodes:
                for text in writer.ledger.check(node.uri(volume))[:5]:
                    self.outcome.problem(f"{writer.name}, at the end through {node.name}: {text}")
        for block, operations in sorted(histories(self.registers).items()):
            for text in registers.faults(operations)[:5]:
                self.outcome.problem(f"register {block}: {text}")

    def table(self):
        """The result as Markdown."""
        lines = ["| Fault | Times | Longest pause of a client, s |", "|---|---:|---:|"]
        for kind, times in sorted(self.outcome.injected.items()):
            pause = self.outcome.worst_pause.get(kind)
            lines.append(f"| {kind} | {times} | {'' if pause is None else f'{pause:.2f}'} |")
        lines += ["", "| Workload | Requests | Reconnected |", "|---|---:|---:|"]
        for workload in self.workloads:
            lines.append(f"| {workload.name} | {workload.done} | {workload.reconnects} |")
        acks = sum(writer.ledger.acks for writer in [*self.writers, self.both])
        operations = sum(len(client.history) for client in self.registers)
        lines += ["", f"Acknowledged writes in ledgers: {acks}; operations on registers: {operations}."]
        return "\n".join(lines)
