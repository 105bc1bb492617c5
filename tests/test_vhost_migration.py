"""A virtual machine that moves between nodes, its disk a vhost-user socket of each.

What its hypervisor does is done by a client of a few lines. With QEMU and a kernel: tests/guest_vhost_migration.py.

The configuration is in etcd: the embedded server would stand still with its node.
"""

import random
import signal
import threading
import time

import pytest

from tools.harness.process import wait_until
from tools.harness.vhost import IN, OUT, Client

BLOCK = 4096
SECTORS = BLOCK // 512
PLACES = 400


@pytest.fixture(scope="module")
def cluster(module_cluster):
    """Three nodes of two shards; two of them have a socket for the volume."""
    cluster = module_cluster(start=False, config="etcd")
    cluster.sockets = [cluster.folder / f"{node.name}.sock" for node in cluster.nodes[:2]]
    for node, path in zip(cluster.nodes, cluster.sockets, strict=False):
        node.options = ["--vhost-socket", f"vol1={path}", "--shards", "2", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "64MiB")
    return cluster


@pytest.fixture
def client(cluster):
    made = []

    def connect(node, **options):
        made.append(Client(cluster.sockets[node], slot=BLOCK, **options))
        return made[-1]

    yield connect
    for one in made:
        one.close()
    wait_until(lambda: attached_to(cluster) == [], 30, "nobody's having the volume")


def attached_to(cluster):
    shown = cluster.json("volume", "show", "vol1", node=cluster.nodes[2])
    return [entry["node_name"] for entry in shown["attachments"]]


class Load:
    """Writes and reads of a driver, in no order; the last bytes of each place are known."""

    def __init__(self, seed):
        self.chance, self.expected, self.owners = random.Random(seed), {}, {}

    def ask(self, ring, count):
        busy = {place for place, _ in self.owners.values()}
        for _ in range(count):
            place = self.chance.choice([place for place in range(PLACES) if place not in busy])
            busy.add(place)
            if self.chance.random() < 0.5:
                self.expected[place] = self.chance.randbytes(BLOCK)
                self.owners[ring.submit(OUT, place * SECTORS, self.expected[place], kick=False)] = place, True
            else:
                self.owners[ring.submit(IN, place * SECTORS, reads=BLOCK, kick=False)] = place, False
        ring.ring()

    def reap(self, ring, count):
        for _ in range(count):
            head, data = ring.reap()
            place, is_write = self.owners.pop(head)
            assert is_write or data == self.expected.get(place, data), place

    def check(self, ring):
        self.reap(ring, len(self.owners))
        for place, data in self.expected.items():
            assert ring.read(place * SECTORS, BLOCK) == data, place


def move(source, target, load):
    """The machine moves while its driver works; what is under way is answered while its rings are stopped."""
    source.begin_to_log()
    # All pages are copied once, whatever they have in them.
    target.memory[:] = source.memory[:]
    source.written = set()
    for _ in range(5):
        load.ask(source.rings[0], 20)
        load.reap(source.rings[0], 17)
    load.ask(source.rings[0], 10)
    base = source.rings[0].stop()
    source.copy_to(target)
    assert source.memory[:] == target.memory[:], "a page that was written is not in the log"
    target.rings[0].take_over(source.rings[0])
    # What was not taken yet is left to the other node.
    assert 0 <= source.rings[0].available - base <= 10
    target.start()
    # Its driver may not have been told of what was used at the end.
    assert target.rings[0].is_called()


@pytest.mark.parametrize("event_idx", [True, False])
def test_a_machine_moves_to_another_node_and_back(cluster, client, event_idx):
    load = Load(event_idx)
    one = client(0, event_idx=event_idx).start()
    load.ask(one.rings[0], 20)
    wait_until(lambda: attached_to(cluster) == ["n1"], 10, "n1's having the volume")
    two = client(1, event_idx=event_idx)
    assert two.config(8) == one.config(8), "what a hypervisor asks before its machine has come"
    load.reap(one.rings[0], 20)
    move(one, two, load)
    load.check(two.rings[0])
    assert attached_to(cluster) == ["n2"]
    # The machine that it has left ends later, or is not there any more.
    one.close()
    three = client(0, event_idx=event_idx)
    move(two, three, load)
    load.check(three.rings[0])
    assert attached_to(cluster) == ["n1"]


def test_two_machines_at_the_same_node(cluster, client):
    """The one that is to take over connects, and does not end the one that works."""
    load = Load(5)
    one = client(0).start()
    two = client(0)
    load.ask(one.rings[0], 20)
    load.reap(one.rings[0], 20)
    move(one, two, load)
    load.check(two.rings[0])
    assert two.config(8) == one.config(8), "the former one is still connected"


def test_a_machine_that_can_not_move_goes_on(cluster, client):
    load = Load(6)
    one = client(0).start()
    for _ in range(2):
        one.begin_to_log()
        load.ask(one.rings[0], 20)
        one.rings[0].stop()
        wait_until(lambda: attached_to(cluster) == [], 10, "the volume's being left")
        one.end_to_log()
        # On the connection that it has.
        one.start()
        load.check(one.rings[0])
        assert attached_to(cluster) == ["n1"]
    # It gives up while it works: it has the volume all along.
    one.begin_to_log()
    load.ask(one.rings[0], 20)
    one.end_to_log()
    load.check(one.rings[0])


def test_a_machine_that_is_paused_keeps_its_volume(cluster, client):
    one = client(0).start()
    one.rings[0].write(0, b"1" * BLOCK)
    one.rings[0].stop()
    two = client(1)
    with pytest.raises(ConnectionError):
        two.start().rings[0].read(0, BLOCK)
    assert attached_to(cluster) == ["n1"]
    one.start()
    assert one.rings[0].read(0, BLOCK) == b"1" * BLOCK


def test_a_machine_that_begins_too_early_gets_nothing(cluster, client):
    """It is told who has the volume, which goes on at the other node all the time."""
    load = Load(7)
    one = client(0).start()
    # Its node has the volume: of two that begin at once either may be the early one.
    load.ask(one.rings[0], 1)
    load.reap(one.rings[0], 1)
    ended = threading.Event()

    def come_early():
        with pytest.raises(ConnectionError):
            client(1).start().rings[0].write(0, b"2" * BLOCK)
        ended.set()

    early = threading.Thread(target=come_early)
    early.start()
    deadline = time.monotonic() + 30
    while not ended.is_set() and time.monotonic() < deadline:
        load.ask(one.rings[0], 10)
        load.reap(one.rings[0], 10)
    early.join()
    assert ended.is_set()
    load.check(one.rings[0])
    assert "can't open 'vol1'" in cluster.nodes[1].log()


def test_what_the_former_node_does_late_never_lands(cluster, client):
    """A node stands still with its machine's writes on their way to it; the machine is started elsewhere, as after a
    failure. What the node does with those writes when it goes on changes nothing."""
    one = client(0).start()
    (ring,) = one.rings
    ring.write(0, b"a" * BLOCK)
    cluster.nodes[0].process.pause()
    try:
        late = [ring.submit(OUT, place * SECTORS, b"late" * (BLOCK // 4)) for place in range(30)]
        deadline = time.monotonic() + 60
        while True:
            two = client(1)
            try:
                two.start().rings[0].write(0, b"b" * BLOCK)
                break
            except ConnectionError:
                assert time.monotonic() < deadline, "n2 does not get the volume"
        for place in range(30):
            two.rings[0].write(place * SECTORS, b"b" * BLOCK)
    finally:
        cluster.nodes[0].process.signal(signal.SIGCONT)
    assert late
    # It is told that it has the volume no more, and says so by ending the connection, or by errors.
    cluster.wait_healthy()
    wait_until(lambda: "not attached here any more" in cluster.nodes[0].log(), 30, "a line of n1 about it")
    for place in range(30):
        assert two.rings[0].read(place * SECTORS, BLOCK) == b"b" * BLOCK
