"""E4: many machines' images on one shared store."""

import os
from statistics import pstdev

from tools.bench.sizes import parse_size
from tools.lab import bonnie, filesystems, results
from tools.lab.packages import Unavailable, ensure
from tools.lab.steps import Setup, Step

from . import compare
from .base import Experiment, Plot, Section, Table, rounds

# bonnie++ alone on a volume; more of them at once share the disk.
BONNIE_S, BONNIE_S_A_CLIENT = 4, 1
# The share of a volume that its file system, bonnie++'s files and the journal come to write.
WRITTEN_SHARE = 0.5


class ManyImages(Experiment):
    name = "E4"
    title = "Many machines' images on one shared store"
    source = "A study of NFSv4, GFS2, CLVM, Gluster 3 and CephFS under OpenStack Nova, 2015"
    question = (
        "When several machines work on their images at once, how long does the slowest take, and is the store fair?"
    )
    method = (
        "bonnie++ runs in 2, 3, 6 and 9 clients, started together, each on an ext4 of its own on a volume of its own; "
        "the file system stands on a loop device with direct I/O, over nbdfuse where the volume is reached over NBD. "
        "The time at which each client finishes is noted: the longest, and the standard deviation (small is fair)."
    )
    found = (
        "Ceph with 3 copies was by far the fairest, 1.5 to 19 s of deviation where the others had up to 877 s: objects "
        "of 4 MiB spread over all devices, and clients that talk straight to the device that has the object."
    )

    def steps(self, settings):
        counts, size = settings["clients"], parse_size(settings["size"])
        for number, targets in rounds(settings):
            for target in targets:
                setup = Setup(target, size, volumes=max(counts), fill=False, written_share=WRITTEN_SHARE)
                for count in counts:
                    action = _action(count, settings["bonnie"])
                    expected_s = BONNIE_S + BONNIE_S_A_CLIENT * count
                    yield Step(self.name, "clients", setup, f"x{count}", number, expected_s, action)

    def told(self, data):
        return f"longest {data['longest_s']:.1f} s, deviation {data['deviation_s']:.2f} s"

    def section(self, lines, settings, published):
        labels = compare.order(lines, settings["targets"])
        counts = settings["clients"]
        tests = [f"x{count}" for count in counts]
        size = settings["bonnie"]["size_mib"]
        section = Section(
            conditions=(
                f"files of {size} MiB on volumes of {settings['size']}; rounds: {settings['rounds']}"
                + ("" if settings["bonnie"].get("per_char", True) else ", without the tests of one character a call")
                + "."
            ),
            published=[_published_table(published)],
            not_comparable=[
                *compare.not_run(lines),
                "The study's clients were virtual machines on three hosts; here all of them and the store share one "
                "machine's processors, and the page cache above each file system is this machine's.",
                "bonnie++'s lengths differ, so seconds cannot be compared with the published ones; shapes can.",
            ],
        )
        for what, value, name in (
            ("Longest finishing time, s", "longest_s", "longest"),
            ("Standard deviation of the finishing times, s", "deviation_s", "deviation"),
        ):
            spreads = results.spreads(lines, lambda data: data[value])
            rows = [
                [compare.title_of(label), *(compare.spread_text(spreads.get((label, test))) for test in tests)]
                for label in labels
            ]
            section.measured.append(Table(what, ["target", *(f"{count} clients" for count in counts)], rows))
            series = {}
            for label in labels:
                points = [(count, spreads.get((label, f"x{count}"))) for count in counts]
                series[compare.title_of(label)] = [(x, s.median, s.least, s.most) for x, s in points if s]
            section.plots.append(
                Plot(f"e4-{name}", what.rsplit(",", 1)[0], "lines", series, x="clients", y="seconds", group="Fairness")
            )
            section.losses += compare.losses(spreads, tests, f"{name} of ", fewer_is_better=True)
        section.plots.append(_published_plot(published))
        section.plots += _client_plots(lines, labels)
        section.measured.append(_price_table(lines, labels, tests))
        return section


def _action(count, settings):
    def act(live):
        if os.geteuid() != 0:
            raise Unavailable("needs root for loop devices and mounts")
        ensure([*bonnie.TOOLS, *filesystems.TOOLS])
        target = live.target
        mounts = []
        try:
            for volume in range(count):
                path = target.path(volume)
                uri = None if path is not None else target.uri(volume)
                mounts.append(filesystems.Mounted(target.folder / f"{count}-clients" / f"{volume}", path, uri))
                mounts[-1].start()
            with live.sampled() as sampler:
                finished = bonnie.run_together([mount.folder for mount in mounts], settings)
        finally:
            problems = []
            for mount in reversed(mounts):
                try:
                    mount.stop()
                except RuntimeError as error:
                    problems.append(str(error))
        if problems:
            raise RuntimeError("; ".join(problems))
        seconds = [one[0] for one in finished]
        return {
            "finishing_s": [round(value, 3) for value in seconds],
            "longest_s": max(seconds),
            "deviation_s": pstdev(seconds),
            "figures": [one[1] for one in finished],
            **live.usage(sampler),
            "command": bonnie.command("FOLDER", settings),
            "bonnie": [one[2] for one in finished],
        }

    return act


def _published_table(published):
    head = ["store", *(f"{count} clients" for count in published["clients"])]
    rows = [[name, *map(str, values)] for name, values in published["deviation"].items()]
    return Table("Published: standard deviation of the finishing times, s", head, rows)


def _published_plot(published):
    series = {
        f"published: {name}": list(zip(published["clients"], values)) for name, values in published["deviation"].items()
    }
    return Plot(
        "e4-published",
        "Published: standard deviation",
        "lines",
        series,
        x="clients",
        y="seconds",
        log_y=True,
        group="Fairness",
    )


def _client_plots(lines, labels):
    """Each client's finishing time, a panel a target."""
    for label in labels:
        points = [
            (int(line["test"].removeprefix("x")), seconds)
            for line in lines
            if line["label"] == label and "data" in line
            for seconds in line["data"]["finishing_s"]
        ]
        name = f"e4-clients-{label}"
        title = f"{compare.title_of(label)}: every client's finishing time"
        yield Plot(
            name,
            title,
            "dots",
            {compare.title_of(label): points},
            x="clients at once",
            y="seconds",
            group="Every client",
        )


def _price_table(lines, labels, tests):
    cpu = results.spreads(lines, lambda data: data.get("server_cpu_s"))
    memory = results.spreads(lines, lambda data: data.get("resident_mib"))
    rows = []
    for label in labels:
        key = (label, tests[-1])
        if key in cpu:
            rows.append([compare.title_of(label), f"{cpu[key].median:.1f}", f"{memory[key].median:,.0f}"])
    return Table(f"With {tests[-1][1:]} clients", ["target", "server CPU, s", "server memory, MiB"], rows)
