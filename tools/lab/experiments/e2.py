"""E2: growing device counts on one machine, with the caches and devices watched."""

from tools.bench.sizes import parse_size
from tools.lab import results
from tools.lab.steps import Setup, Step
from tools.lab.targets import lookup

from . import compare
from .base import Experiment, Plot, Section, Table

FIO_S = 0.4
MIB = 2**20

# The study's pair (requests of 4 KiB, one at a time, in order), then the tests in which device counts show most. Reads
# come twice so that the second shows what the caches kept.
TESTS = {
    "write": ("--rw=write --bs=4k --numjobs=1 --iodepth=1", "MiB/s"),
    "read": ("--rw=read --bs=4k --numjobs=1 --iodepth=1", "MiB/s"),
    "randwrite q128": ("--rw=randwrite --bs=4k --numjobs=1 --iodepth=128", "IOPS"),
    "randread q128": ("--rw=randread --bs=4k --numjobs=1 --iodepth=128", "IOPS"),
    "randread q128 again": ("--rw=randread --bs=4k --numjobs=1 --iodepth=128", "IOPS"),
    "write 4M": ("--rw=write --bs=4M --numjobs=1 --iodepth=16", "MiB/s"),
}
OVER_TIME = "Over time, through the tests of the first round in the order of the tables"
UNITS = {name: unit for name, (_, unit) in TESTS.items()}


class DeviceCounts(Experiment):
    name = "E2"
    title = "A distributed store on one machine; growing device counts"
    source = "A study of Rook/Ceph 15 on ZFS, 2020"
    question = "What does a store lose when one machine has 3, 6, 30 or 50 devices, and what do its caches do?"
    method = (
        "fio reads and writes in order with one request of 4 KiB at a time, as published; then at random with 128 in "
        "flight and in order with 4 MiB. Two copies on different devices of the same machine (one copy where there is "
        "one device). Caches and each device's bytes are sampled meanwhile."
    )
    found = (
        "The read cache makes the reads; more OSDs on a pool cost speed, and with 30 to 50 of them 85 to 95 % is lost."
    )

    def steps(self, settings):
        # As published, the rounds repeat the tests on one store: starting one with fifty devices takes minutes.
        size, seconds = parse_size(settings["size"]), settings["seconds"]
        for count in settings["devices"]:
            for target in settings["targets"]:
                if count > 1 and not lookup(target)[0].counts_devices:
                    continue
                setup = Setup(target, size, options=(("devices", count),))
                for number in range(1, settings["rounds"] + 1):
                    for test in settings["tests"]:
                        action = _action(TESTS[test][0].split(), seconds)
                        expected_s = seconds + FIO_S
                        yield Step(self.name, "devices", setup, test, number, expected_s, action, shared_by_rounds=True)

    def told(self, data):
        return f"{data['iops']:,.0f} IOPS, {data['mib_s']:,.0f} MiB/s"

    def section(self, lines, settings, published):
        rates = compare.rates(lines, UNITS)
        counts = settings["devices"]
        names = compare.order(lines, [])
        variants = list(dict.fromkeys(label.split(" ")[0] for label in names))
        measured = {
            variant: [count for count in counts if f"{variant} devices={count}" in names] for variant in variants
        }
        several = [variant for variant in variants if len(measured[variant]) > 1]
        section = Section(
            conditions=f"{settings['size']} under test, {settings['seconds']} s a test; rounds: {settings['rounds']}.",
            published=[_published_table(published)],
            not_comparable=[
                *compare.not_run(lines),
                "All devices are files on one disk: more of them bring no more speed of hardware, only their cost.",
                "The published figures were taken with the client's page cache and pools on ZFS; the raw file here is "
                "without a cache.",
            ],
        )
        for test, unit in ((test, UNITS[test]) for test in settings["tests"]):
            rows = []
            for variant in variants:
                cells = [compare.spread_text(rates.get((f"{variant} devices={count}", test))) for count in counts]
                rows.append([compare.title_of(variant), *cells, _kept(rates, variant, test, 3, counts[-1])])
            head = ["target", *(f"{count}" for count in counts), f"{counts[-1]} ÷ 3 devices"]
            section.measured.append(Table(f"{test}, {unit} by number of devices", head, rows))
            section.plots.append(_speed_plot(rates, variants, counts, test, unit))
        for test in published["by_devices"]:
            if test in settings["tests"]:
                section.plots.append(_shape_plot(rates, several, counts, published, test))
        for variant in several:
            section.plots += _over_time(lines, variant, measured[variant][-1])
        section.losses = _losses(rates, variants, settings)
        return section


def _action(arguments, seconds):
    return lambda live: live.fio(arguments, seconds)


def _kept(rates, variant, test, few, many):
    first = rates.get((f"{variant} devices={few}", test))
    last = rates.get((f"{variant} devices={many}", test))
    return f"{last.median / first.median:.2f}" if first and last and first.median else "–"


def _published_table(published):
    return Table("Published", ["setup", "read MiB/s", "read IOPS", "write MiB/s", "write IOPS"], published["rows"])


def _speed_plot(rates, variants, counts, test, unit):
    series = {}
    for variant in variants:
        points = [(count, rates.get((f"{variant} devices={count}", test))) for count in counts]
        series[compare.title_of(variant)] = [(x, s.median, s.least, s.most) for x, s in points if s]
    return Plot(
        f"e2-{test}", test, "lines", series, x="devices", y=unit, log_x=True, group="Speed over the number of devices"
    )


def _shape_plot(rates, variants, counts, published, test):
    """Speed relative to three devices, beside the published ones: the shape that can be compared."""
    figures = published["by_devices"][test]
    series = {"published: Ceph": [(count, value / figures[3]) for count, value in figures.items()]}
    for variant in variants:
        base = rates.get((f"{variant} devices=3", test))
        points = [(count, rates.get((f"{variant} devices={count}", test))) for count in counts if count >= 3]
        if base and base.median:
            series[compare.title_of(variant)] = [(x, s.median / base.median) for x, s in points if s]
    title = f"{test}, relative to 3 devices"
    return Plot(
        f"e2-shape-{test}",
        title,
        "lines",
        series,
        x="devices",
        y="ratio",
        log_x=True,
        group="The shape, beside the published one",
    )


def _over_time(lines, variant, count):
    """Cache hits and every device's bytes over the tests of one round, one test after the other."""
    label = f"{variant} devices={count}"
    chosen = [line for line in lines if line["label"] == label and line["round"] == 1 and "data" in line]
    hits, devices, past = [], {}, 0.0
    for line in chosen:
        series = line["data"]["series"]
        for sample in series:
            at = round(past + sample["t"], 2)
            asked = sample.get("cache_hits", 0) + sample.get("cache_misses", 0)
            if asked:
                hits.append((at, sample["cache_hits"] / asked))
            for number in range(count):
                moved = sample.get(f"read_{number}", 0) + sample.get(f"written_{number}", 0)
                devices.setdefault(number, []).append((at, moved / MIB))
        past += series[-1]["t"] if series else 0
    title = compare.title_of(variant)
    if hits:
        series = {title: hits}
        name = f"{title}, {count} devices: share of reads from the cache"
        yield Plot(f"e2-cache-{variant}", name, "lines", series, "seconds", "share", group=OVER_TIME)
    if any(value for points in devices.values() for _, value in points):
        series = _band(devices)
        name = f"{title}: MiB/s of each of {count} devices"
        yield Plot(f"e2-devices-{variant}", name, "lines", series, "seconds", "MiB/s", group=OVER_TIME)


def _band(devices):
    """Fifty lines are no picture: the devices' median, with the least and the most at each moment."""
    moments = zip(*devices.values())
    points = []
    for moment in moments:
        values = results.Spread([value for _, value in moment])
        points.append((moment[0][0], values.median, values.least, values.most))
    return {"median device, least and most shaded": points}


def _losses(rates, variants, settings):
    sentences, counts = [], settings["devices"]
    for test in settings["tests"]:
        for count in counts:
            ours = rates.get((f"{compare.OURS} devices={count}", test))
            for variant in variants:
                peer = rates.get((f"{variant} devices={count}", test))
                both = ours and peer and compare.copies_of(variant) > 1
                if variant != compare.OURS and both and ours.median < peer.median:
                    ratio = ours.median / peer.median
                    sentences.append(f"{test} on {count} devices: behind {compare.title_of(variant)} ({ratio:.2f})")
        few, many = (rates.get((f"{compare.OURS} devices={count}", test)) for count in (3, counts[-1]))
        if few and many and many.median < 0.9 * few.median:
            kept = many.median / few.median
            sentences.append(f"{test}: {counts[-1]} devices keep {kept:.2f} of the speed of 3; at least 0.90 is wanted")
    return sentences
