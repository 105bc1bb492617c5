"""E0: one volume, rising parallelism."""

import itertools

from tools.bench.sizes import parse_size
from tools.lab import results
from tools.lab.steps import Setup, Step

from . import compare
from .base import Experiment, Plot, Section, Table, rounds

# fio's start and end beside the time asked for.
FIO_S = 0.4


class RisingParallelism(Experiment):
    name = "E0"
    title = "One volume, rising parallelism"
    source = "A study of OpenEBS 0.5.1 (Jiva), 2018"
    question = "How does one volume's speed grow with the number of clients that write or read it at once?"
    method = (
        "fio with 1, 2, 4 … 512 jobs, each with one request at a time, reads or writes one volume at random with "
        "requests of 4 KiB, 16 KiB, 64 KiB and 1 MiB, 3 seconds each, without the client's page cache."
    )
    found = (
        "The local NVMe gave 500,000 read and 350,000 write IOPS, the same over iSCSI about 60,000 of both, OpenEBS "
        "never more than 2,000: its controller handled one command at a time at some 500 µs each."
    )

    def steps(self, settings):
        size, seconds = parse_size(settings["size"]), settings["seconds"]
        matrix = list(itertools.product(settings["modes"], settings["block_sizes"], settings["jobs"]))
        for number, targets in rounds(settings):
            for target in targets:
                for mode, block, jobs in matrix:
                    action = _action(mode, block, jobs, seconds)
                    test = f"{mode} {block} x{jobs}"
                    yield Step(self.name, "matrix", Setup(target, size), test, number, seconds + FIO_S, action)

    def told(self, data):
        return f"{data['iops']:,.0f} IOPS"

    def section(self, lines, settings, published):
        labels = compare.order(lines, settings["targets"])
        rates = results.spreads(lines, lambda data: data["iops"])
        section = Section(
            conditions=f"{settings['size']} under test, {settings['seconds']} s a point; rounds: {settings['rounds']}.",
            published=[Table("Published, IOPS (highest)", ["target", "read", "write"], published["rows"])],
            not_comparable=[
                *compare.not_run(lines),
                "The study had two replicas, one of them on another machine over 10 GbE; here all processes share one "
                "machine.",
                "No flushes are asked for: on the raw file and at qemu-nbd a write is finished when the disk's cache "
                "has it, at nbdkit when memory has it, at Azekura and Ceph when every copy has it durably.",
            ],
        )
        tests = []
        for mode in settings["modes"]:
            for block in settings["block_sizes"]:
                panel = [f"{mode} {block} x{jobs}" for jobs in settings["jobs"]]
                tests += panel
                units = dict.fromkeys(panel, "IOPS")
                section.measured.append(compare.wide_table(f"{mode}, {block}", panel, labels, rates, units))
                section.plots.append(_plot(mode, block, settings["jobs"], labels, rates))
        section.losses = compare.losses(rates, tests)
        return section


def _action(mode, block, jobs, seconds):
    arguments = [f"--rw={mode}", f"--bs={block}", f"--numjobs={jobs}", "--iodepth=1", "--kb_base=1024"]
    return lambda live: live.fio(arguments, seconds)


def _plot(mode, block, jobs, labels, rates):
    series = {}
    for label in labels:
        points = [
            (count, spread.median, spread.least, spread.most)
            for count in jobs
            if (spread := rates.get((label, f"{mode} {block} x{count}")))
        ]
        if points:
            series[compare.title_of(label)] = points
    mib = parse_size(block.upper()) / 2**20
    return Plot(
        name=f"e0-{mode}-{block}",
        title=f"{mode}, {block}",
        kind="lines",
        series=series,
        x="jobs",
        y="IOPS",
        log_x=True,
        log_y=True,
        second_y=("MiB/s", mib),
    )
