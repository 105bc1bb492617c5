"""What shards cost and give: the same load on machines of one, two and four shards, and of four processes each."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.harness.cluster import Cluster

from . import fio
from .plan import COMMON, FILL, READ_ONCE, SHARDS_CPU_MAX
from .report import yes
from .targets import VOLUME, Azekura

MACHINES, DEVICES = 3, 4
# Connections of the client: as many as the most shards, so that each shard has one.
CLIENTS, DEPTH = 4, 32
# The paced tests ask for this share of what one shard gives.
PACED = 0.5
KINDS = ("randwrite", "randread")
ONE = "1 shard"


class Sharded(Azekura):
    """Three nodes of four devices and so many shards each."""

    volume_size = "8GiB"

    def __init__(self, folder, options, shards):
        self.name = ONE if shards == 1 else f"{shards} shards"
        self.size = options.size
        self.cluster = Cluster(
            Path(folder) / f"shards-{shards}",
            nodes=MACHINES,
            device_size=options.device_size,
            node_options=["--devices", DEVICES, "--shards", shards],
            transport=options.transport,
        )

    def start(self):
        self.cluster.start()
        self.make_volume()
        for test in (FILL, READ_ONCE):
            fio.run(fio.command(self.engine(), self.size, test))

    def make_volume(self):
        # Shared, since clients of several processes use it where a machine has several.
        self.cluster.create_volume(VOLUME, self.volume_size, copies=2, shared=True)

    def uris(self):
        """Where the clients connect, one after the other."""
        return [self.cluster.first.uri(VOLUME)] * CLIENTS


class Processes(Sharded):
    """Three machines of four nodes with a device each: several event loops without shards. A machine is a rack."""

    def __init__(self, folder, options):
        self.name = f"{DEVICES} processes"
        self.size = options.size
        self.cluster = Cluster(
            Path(folder) / "processes",
            nodes=MACHINES * DEVICES,
            device_size=options.device_size,
            transport=options.transport,
        )
        for node in self.cluster.nodes:
            node.options = ["--rack", f"machine{(node.number - 1) // DEVICES}"]

    def make_volume(self):
        self.cluster.cli("class", "create", "machines", "--copies", 2, "--failure-domain", "rack")
        self.cluster.cli("volume", "create", VOLUME, self.volume_size, "--class", "machines", "--shared")
        self.cluster.wait_healthy()

    def uris(self):
        return [node.uri(VOLUME) for node in self.cluster.nodes[:CLIENTS]]


@dataclass
class Turn:
    """What one target gave in one turn of one test."""

    target: str
    test: str
    rate: float
    cpu_us: float
    p99_us: float


def load(uris, kind, size, secs, rate=None):
    """fio's command line: a job for each of the clients, each with a connection of its own."""
    common = [word for word in COMMON if not word.startswith("--name")]
    words = ["fio", *common, f"--size={size}", "--ioengine=nbd", "--bs=4k", f"--iodepth={DEPTH}", f"--rw={kind}"]
    words += ["--time_based=1", f"--runtime={secs}"]
    if rate is not None:
        words.append(f"--rate_iops={max(1, int(rate / len(uris)))}")
    for number, uri in enumerate(uris):
        words += [f"--name=client{number}", f"--uri={uri}"]
    return words


def measure(target, test, kind, options, folder, rate=None):
    before = target.cpu_seconds()
    raw = fio.run(load(target.uris(), kind, options.size, options.secs, rate), options.secs, folder)
    spent = target.cpu_seconds() - before
    measured = fio.measure(raw)
    return Turn(target.name, test, measured.iops, spent * 1e6 / measured.requests, measured.latency_p99_us)


def ratios(turns, test, value):
    """Medians over the turns of what each target has beside one shard, by target."""
    mine = {}
    for turn in turns:
        if turn.test == test:
            mine.setdefault(turn.target, []).append(value(turn))
    return {
        name: median(here / one for here, one in zip(values, mine[ONE], strict=True)) for name, values in mine.items()
    }


def markdown(turns, names, tests):
    lines = ["| test | target | requests a second | beside one shard | CPU µs a request | beside one shard | p99 µs |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for test in tests:
        rates, costs = ratios(turns, test, lambda turn: turn.rate), ratios(turns, test, lambda turn: turn.cpu_us)
        for name in names:
            mine = [turn for turn in turns if (turn.test, turn.target) == (test, name)]
            rate, cpu = median(turn.rate for turn in mine), median(turn.cpu_us for turn in mine)
            p99 = median(turn.p99_us for turn in mine)
            lines.append(
                f"| {test} | {name} | {rate:,.0f} | {rates[name]:.2f} | {cpu:.1f} | {costs[name]:.2f} | {p99:,.0f} |"
            )
    return "\n".join(lines)


def figures(turns):
    """The cells of docs/performance.md: the CPU of paced requests on four shards beside one."""
    found = {}
    for kind in KINDS:
        cost = ratios(turns, f"{kind}, paced", lambda turn: turn.cpu_us)["4 shards"]
        found[f"shards_{kind}"] = f"{cost:.2f}: {yes(cost <= SHARDS_CPU_MAX)}"
    return found


def run(options, folder, progress):
    targets = [Sharded(folder, options, shards) for shards in (1, 2, 4)] + [Processes(folder, options)]
    turns = []
    try:
        for target in targets:
            progress(f"{target.name}: starting and filling {options.size}")
            target.start()
        paced = {}
        for number in range(options.rounds):
            for kind in KINDS:
                # One shard's rate decides what the paced tests of all ask for.
                if kind not in paced:
                    paced[kind] = PACED * measure(targets[0], kind, kind, options, folder).rate
                for test, rate in ((kind, None), (f"{kind}, paced", paced[kind])):
                    for target in targets if number % 2 == 0 else reversed(targets):
                        turn = measure(target, test, kind, options, folder, rate)
                        turns.append(turn)
                        progress(f"{test:18} {target.name:12} {turn.rate:10,.0f} a second {turn.cpu_us:7.1f} µs")
    finally:
        for target in targets:
            target.stop()
    tests = list(dict.fromkeys(turn.test for turn in turns))
    table = markdown(turns, [target.name for target in targets], tests)
    print(table)
    return {"markdown": table, "figures": figures(turns), "turns": [vars(turn) for turn in turns]}
