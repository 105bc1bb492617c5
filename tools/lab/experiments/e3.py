"""E3: eight fio tests, layer by layer, over 1 GbE, and a stress test."""

from tools.bench import fio
from tools.bench.sizes import parse_size
from tools.lab import results
from tools.lab.steps import Setup, Step

from . import compare
from .base import Experiment, Plot, Section, Table, rounds

FIO_S = 0.4

# The study's eight, by its names: fio's arguments and the unit that the test is judged in.
TESTS = {
    "randwrite_fsync": ("--rw=randwrite --bs=4k --numjobs=1 --iodepth=1 --fsync=1", "IOPS"),
    "randwrite_jobs4": ("--rw=randwrite --bs=4k --numjobs=4 --iodepth=128", "IOPS"),
    "randwrite": ("--rw=randwrite --bs=4k --numjobs=1 --iodepth=128", "IOPS"),
    "write": ("--rw=write --bs=4M --numjobs=1 --iodepth=16", "MiB/s"),
    "randread_fsync": ("--rw=randread --bs=4k --numjobs=1 --iodepth=1", "IOPS"),
    "randread_jobs4": ("--rw=randread --bs=4k --numjobs=4 --iodepth=128", "IOPS"),
    "randread": ("--rw=randread --bs=4k --numjobs=1 --iodepth=128", "IOPS"),
    "read": ("--rw=read --bs=4M --numjobs=1 --iodepth=16", "MiB/s"),
}
UNITS = {name: unit for name, (_, unit) in TESTS.items()}
STRESS = "--rw=randrw --rwmixread=75 --bs=4k --numjobs=1 --iodepth=64"
MIB = 2**20


class EightTests(Experiment):
    name = "E3"
    title = "Eight fio tests, layer by layer, over 1 GbE, and a stress test"
    source = "A comparison of Ceph 16.2.7, LINSTOR/DRBD 9.1.4, Mayastor 1.0 and Vitastor 0.6.12, 2022"
    question = (
        "What does each layer cost (copies, network, the client on a machine without data), how do systems compare, "
        "and what remains when many clients work at once?"
    )
    method = (
        "Eight fio tests against one volume: random writes and reads of 4 KiB with one, 128 and four times 128 "
        "requests in flight, writes and reads of 4 MiB; the first with an fsync after each write. The same with other "
        "numbers of copies, and with each node in a network namespace of its own behind lines of 1 Gbit/s. In the "
        "stress test clients mix 75 % reads and 25 % writes of 4 KiB with 64 in flight, each on a volume of its own; a "
        "client has finished a run each time that it has moved as many bytes as its volume has, and the runs of all "
        "clients are counted with their fractions."
    )
    found = (
        "Charts without figures: replication costs some 3 times the random IOPS with a local copy and over 4 times "
        "with a client on a machine without data; over 1 GbE all four systems fill the line with large blocks; under "
        "stress LINSTOR and Vitastor lead and Ceph takes by far the most CPU and memory."
    )

    def steps(self, settings):
        size = parse_size(settings["size"])
        gbe, stress = settings["gbe"], settings["stress"]
        for number, targets in rounds(settings):
            for target in targets:
                yield from self._eight("eight", Setup(target, size), settings["tests"], settings, [number])
        every_round = range(1, settings["rounds"] + 1)
        for target in _layers_of(settings):
            yield from self._eight("layers", Setup(target, size), settings["layer_tests"], settings, every_round)
        for target in settings["targets"]:
            if target in gbe["targets"]:
                setup = Setup(target, size, rate=gbe["rate"])
                yield from self._eight("gbe", setup, settings["layer_tests"], settings, every_round)
        for clients in stress["clients"]:
            for target in settings["targets"]:
                for number in every_round if target in stress["targets"] else []:
                    setup = Setup(target, parse_size(stress["size"]), volumes=clients)
                    action, expected_s = _stress(clients, stress["seconds"]), stress["seconds"] + FIO_S
                    yield Step(
                        self.name, "stress", setup, f"x{clients}", number, expected_s, action, shared_by_rounds=True
                    )

    def _eight(self, part, setup, tests, settings, numbers):
        """The tests in each of the rounds; what is no comparison between targets keeps one started target for all."""
        seconds = settings["seconds"]
        for number in numbers:
            for test in tests:
                action = _fio(TESTS[test][0].split(), seconds)
                shared = part != "eight"
                yield Step(self.name, part, setup, test, number, seconds + FIO_S, action, shared_by_rounds=shared)

    def told(self, data):
        if "finished" in data:
            return f"{sum(data['finished'])} runs finished, {data['iops']:,.0f} IOPS"
        return f"{data['iops']:,.0f} IOPS, {data['mib_s']:,.0f} MiB/s"

    def section(self, lines, settings, published):
        section = Section(
            conditions=(
                f"{settings['size']} under test, {settings['seconds']} s a test; rounds: {settings['rounds']}; stress: "
                f"{settings['stress']['size']} a client, {settings['stress']['seconds']} s."
            ),
            published=[Table("Published findings", ["what", "found"], published["rows"], prose=True)],
            not_comparable=[
                *compare.not_run(lines),
                "The study's three servers had their own processors and a 10 GbE network; here all nodes and the "
                "client share one machine's processors and one disk.",
                "Azekura's checksums cannot be switched off, so there is no layer without them. Layers of LVM, ZFS and "
                "LUKS need kernel modules and are not measured.",
            ],
        )
        self._show_eight(section, compare.part(lines, "eight"), settings)
        layers = [line for line in lines if line["part"] in ("eight", "layers")]
        self._show_layers(section, layers, settings)
        self._show_gbe(section, compare.part(lines, "gbe"), settings)
        self._show_stress(section, compare.part(lines, "stress"), settings)
        return section

    def _show_eight(self, section, lines, settings):
        labels = compare.order(lines, settings["targets"])
        rates = compare.rates(lines, UNITS)
        tests = settings["tests"]
        section.measured.append(compare.wide_table("The eight tests", tests, labels, rates, UNITS))
        for name, value, digits in (
            ("Server CPU a request, µs (all of the target's processes)", "server_cpu_us", 1),
            ("Resident memory of the servers, MiB", "resident_mib", 0),
            ("99th percentile of the latency, µs", "latency_p99_us", 0),
        ):
            section.measured.append(_plain_table(name, lines, tests, labels, value, digits))
        for test in tests:
            bars = compare.bars(rates, labels, test)
            section.plots.append(Plot(f"e3-{test}", test, "bars", bars, y=UNITS[test], group="The eight tests"))
        section.losses += compare.losses(rates, tests)

    def _show_layers(self, section, lines, settings):
        rates = compare.rates(lines, UNITS)
        labels = [label for label in settings["layers"] if any((label, test) in rates for test in settings["tests"])]
        if not labels:
            return
        tests = settings["layer_tests"]
        rows = []
        for label in labels:
            cells = [compare.spread_text(rates.get((label, test))) for test in tests]
            rows.append([compare.title_of(label), *cells])
        head = ["layer", *(f"{test} ({UNITS[test]})" for test in tests)]
        section.measured.append(Table("Layer by layer", head, rows))
        for test in tests:
            bars = compare.bars(rates, labels, test)
            section.plots.append(
                Plot(f"e3-layers-{test}", f"Layers: {test}", "bars", bars, y=UNITS[test], group="Layer by layer")
            )

    def _show_gbe(self, section, lines, settings):
        labels = compare.order(lines, settings["gbe"]["targets"])
        if not labels:
            return
        rates = compare.rates(lines, UNITS)
        title = f"Over {settings['gbe']['rate']} lines between the nodes"
        lines_mib_s = [line["data"]["line_mib_s"] for line in lines if "data" in line]
        note = (
            "The client is on the first node, as are some of the copies: reads of those do not cross the line. Plain "
            f"TCP carried {compare.spread_text(results.Spread(lines_mib_s))} MiB/s between two nodes."
        )
        tests = settings["layer_tests"]
        section.measured.append(compare.wide_table(title, tests, labels, rates, UNITS, note))
        for test in tests:
            bars = compare.bars(rates, labels, test)
            section.plots.append(Plot(f"e3-gbe-{test}", f"1 GbE: {test}", "bars", bars, y=UNITS[test], group=title))
        section.losses += compare.losses(rates, tests, "over 1 GbE, ")

    def _show_stress(self, section, lines, settings):
        labels = compare.order(lines, settings["stress"]["targets"])
        if not labels:
            return
        counts = settings["stress"]["clients"]
        tests = [f"x{count}" for count in counts]
        volume = parse_size(settings["stress"]["size"])
        finished = results.spreads(lines, lambda data: sum(data["bytes_each"]) / volume)
        section.measured.append(
            compare.wide_table(
                "Stress: runs of all clients together, fractions counted",
                tests,
                labels,
                finished,
                dict.fromkeys(tests, "runs"),
            )
        )
        series = {}
        for label in labels:
            points = [(count, finished.get((label, f"x{count}"))) for count in counts]
            series[compare.title_of(label)] = [(x, s.median, s.least, s.most) for x, s in points if s]
        section.plots.append(
            Plot(
                "e3-stress",
                "Stress: runs of all clients",
                "lines",
                series,
                x="clients",
                y="runs",
                log_x=True,
                group="Stress",
            )
        )
        rows = []
        for label in labels:
            for count in counts:
                rows.append(_stress_row(lines, label, count))
        head = ["target, clients", "IOPS", "slowest ÷ fastest client", "server CPU µs a request", "memory MiB"]
        section.measured.append(Table("Stress: fairness and price", head, [row for row in rows if row]))
        most = f"x{max(counts)}"
        for name, title, unit, scale in (("cpu", "CPU", "cores", 1), ("rss", "memory", "MiB", 1 / MIB)):
            series = {}
            for line in lines:
                if line["test"] == most and "data" in line and line["data"]["series"]:
                    points = [(sample["t"], sample[name] * scale) for sample in line["data"]["series"]]
                    series.setdefault(compare.title_of(line["label"]), points)
            title = f"Stress, {max(counts)} clients: {title} of the servers"
            section.plots.append(Plot(f"e3-stress-{name}", title, "lines", series, x="seconds", y=unit, group="Stress"))
        section.losses += compare.losses(finished, tests, "stress, ")


def _layers_of(settings):
    """The layers that are no targets of their own; none of a system that was not asked for."""
    chosen = set(map(_base, settings["targets"]))
    return [layer for layer in settings["layers"] if layer not in settings["targets"] and _base(layer) in chosen]


def _base(variant):
    """The target that a variant is of: the name up to its first option."""
    return variant.split("-1copy")[0].split("-2copies")[0].split("-3copies")[0].removesuffix("-remote")


def _fio(arguments, seconds):
    def act(live):
        return {**live.fio(arguments, seconds), "line_mib_s": live.line_mib_s}

    return act


def _stress(clients, seconds):
    def act(live):
        outcomes, sampler = live.fio_each(STRESS.split(), seconds, clients)
        measured = [fio.measure(report) for _, report in outcomes]
        volume = live.target.place.volume_bytes
        moved = [_bytes_moved(report) for _, report in outcomes]
        requests = sum(one.requests for one in measured)
        return {
            "finished": [int(count // volume) for count in moved],
            "bytes_each": moved,
            "iops_each": [round(one.iops, 1) for one in measured],
            "iops": sum(one.iops for one in measured),
            "mib_s": sum(one.mib_s for one in measured),
            "requests": requests,
            **live.usage(sampler, requests),
            "commands": [command for command, _ in outcomes],
            "fio": [report for _, report in outcomes],
        }

    return act


def _bytes_moved(report):
    (job,) = report["jobs"]
    return job["read"]["io_bytes"] + job["write"]["io_bytes"]


def _plain_table(title, lines, tests, labels, value, digits):
    spreads = results.spreads(lines, lambda data: data.get(value))
    rows = []
    for test in tests:
        cells = [spreads.get((label, test)) for label in labels]
        rows.append([test, *(f"{cell.median:,.{digits}f}" if cell else "–" for cell in cells)])
    return Table(title, ["test", *map(compare.title_of, labels)], rows)


def _stress_row(lines, label, count):
    chosen = [line for line in lines if line["test"] == f"x{count}" and line["label"] == label]
    key = (label, f"x{count}")
    iops = results.spreads(chosen, lambda data: data["iops"]).get(key)
    if iops is None:
        return None
    fair = results.spreads(chosen, lambda data: min(data["iops_each"]) / max(data["iops_each"])).get(key)
    cpu = results.spreads(chosen, lambda data: data.get("server_cpu_us")).get(key)
    memory = results.spreads(chosen, lambda data: data.get("resident_mib")).get(key)
    return [
        f"{compare.title_of(label)}, {count}",
        compare.spread_text(iops),
        f"{fair.median:.2f}",
        f"{cpu.median:.1f}" if cpu else "–",
        f"{memory.median:,.0f}" if memory else "–",
    ]
