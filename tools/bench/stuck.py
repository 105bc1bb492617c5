"""What a volume of which a node has the only copies costs the other volumes of its gateway while that node is away."""

import statistics
import time

from tools.harness.nbd import CMD_WRITE, Client

from . import fio
from .plan import FILL, STUCK_RATIO_MIN
from .report import yes
from .targets import Azekura

CLASS, STUCK, OTHER = "one", "solo", "vol1"
BLOCK, CHUNK, CHUNKS = 4096, 4 << 20, 64
# Writes to each chunk that wait at once: more than a volume may keep under way.
ROUNDS = 8
TEST = "--rw=randwrite --bs=4k --iodepth=32"
# For the class's change to reach the gateway, and for groups to find other primaries.
SETTLE_S = 5


class Bench:
    """A cluster whose third node is dead, and with it a part of the volume that has one copy."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        target = Azekura.asked_for(folder, options, options.size)
        self.target, self.cluster = target, target.cluster

    def engine(self):
        return ["--ioengine=nbd", f"--uri={self.cluster.first.uri(OTHER)}"]

    def start(self):
        self.target.start()
        self.cluster.cli("class", "create", CLASS, "--copies", 1, "--io-timeout", "never")
        self.cluster.cli("volume", "create", STUCK, CHUNKS * CHUNK, "--class", CLASS)
        self.cluster.wait_healthy()
        fio.run(fio.command(self.engine(), self.options.size, FILL), folder=self.folder)
        self.cluster.nodes[2].kill()
        time.sleep(SETTLE_S)

    def rate(self):
        """Writes a second to the other volume."""
        words = fio.command(self.engine(), self.options.size, TEST.split(), self.options.secs)
        return fio.measure(fio.run(words, self.options.secs, self.folder)).iops

    def beside(self):
        """The same while as many writes wait as a client can have."""
        self.cluster.cli("class", "set", CLASS, "--io-timeout", "never")
        with Client(self.cluster.first.uri(STUCK)) as client:
            for number in range(ROUNDS * CHUNKS):
                client.send(CMD_WRITE, number % CHUNKS * CHUNK, data=b"a" * BLOCK)
            rate = self.rate()
            waiting = ROUNDS * CHUNKS - answers(client)
            assert waiting > 0, "no write waited for the node that is away"
            self.cluster.cli("class", "set", CLASS, "--io-timeout", "1s")
            for _ in range(waiting):
                client.receive()
        return rate, waiting


def answers(client):
    """How many answers there are already."""
    client.socket.settimeout(1)
    count = 0
    try:
        while True:
            client.receive()
            count += 1
    except TimeoutError:
        client.socket.settimeout(60)
        return count


def run(options, folder, progress):
    bench = Bench(options, folder)
    turns = []
    try:
        bench.start()
        for number in range(options.rounds):
            alone = bench.rate() if number % 2 == 0 else None
            beside, waiting = bench.beside()
            alone = bench.rate() if alone is None else alone
            turns.append((alone, beside, waiting))
            progress(f"{alone:,.0f} writes a second, {beside:,.0f} beside {waiting} that wait: {beside / alone:.3f}")
    finally:
        bench.target.stop()
    ratio = statistics.median(beside / alone for alone, beside, _ in turns)
    reached = yes(ratio >= STUCK_RATIO_MIN)
    print(f"beside a volume that is stuck: {ratio:.3f} of the rate alone, {STUCK_RATIO_MIN} wanted: {reached}")
    lines = ["| turn | alone, writes a second | beside | writes that waited | ratio |", "|---:|---:|---:|---:|---:|"]
    for number, (alone, beside, waiting) in enumerate(turns, 1):
        lines.append(f"| {number} | {alone:,.0f} | {beside:,.0f} | {waiting} | {beside / alone:.3f} |")
    return {
        "markdown": "\n".join(lines),
        "figures": {"stuck": f"{ratio:.2f}: {reached}"},
        "ratio": ratio,
        "turns": turns,
    }
