"""Attachments: one node's clients at a time, unless a volume is shared; and nothing of who was cut off lands later.

The configuration is in etcd: the embedded server would stand still with its node.
"""

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.cluster import CliError
from tools.harness.nbd import CMD_WRITE, Client, NbdError
from tools.harness.process import wait_until

ROOT = Path(__file__).parents[1]
BLOCK = 4096
WORKERS, SESSIONS = 6, 60
ESHUTDOWN = 108
TCP_REPAIR = 19  # <linux/tcp.h>
PEER_SILENT_MAX_S = 60  # docs/decisions/0017: a peer whose machine answers nothing


@pytest.fixture(scope="module")
def cluster(module_cluster):
    return module_cluster(config="etcd")


@pytest.fixture
def make_volume(cluster):
    made = []

    def make(*options):
        name = f"a{len(made)}-{time.monotonic_ns() % 10**9}"
        cluster.cli("volume", "create", name, "64MiB", *options)
        made.append(name)
        return name

    yield make
    for name in made:
        cluster.delete_volume(name)


def attached_to(cluster, volume):
    return [entry["node_name"] for entry in cluster.json("volume", "show", volume)["attachments"]]


def opens(uri):
    try:
        with Client(uri) as client:
            return client.read(0, 1) == b"\0"
    except ConnectionError:
        return False


def refused(cluster, *arguments, node=None):
    with pytest.raises(CliError) as error:
        cluster.cli(*arguments, node=node)
    assert "panicked" not in error.value.stderr
    return error.value.stderr


def test_clients_attach_by_themselves(cluster, make_volume):
    volume = make_volume()
    one, two, _ = cluster.nodes
    assert attached_to(cluster, volume) == []
    with Client(one.uri(volume)) as client, Client(one.uri(volume, tcp=True)) as second:
        client.write(0, b"1" * BLOCK)
        assert second.read(0, BLOCK) == b"1" * BLOCK
        wait_until(lambda: attached_to(cluster, volume) == ["n1"], 10, "the attachment to be shown")
        assert "n1" in cluster.cli("volume", "list") and "n1" in cluster.cli("volume", "show", volume)
        started = time.monotonic()
        with pytest.raises(ConnectionError) as refusal:
            Client(two.uri(volume))
        assert time.monotonic() - started < 30
        assert "attached to node n1" in str(refusal.value) and "--force" in str(refusal.value)
        client.write(0, b"2" * BLOCK)
    with Client(two.uri(volume)) as client:
        assert client.read(0, BLOCK) == b"2" * BLOCK
        wait_until(lambda: attached_to(cluster, volume) == ["n2"], 10, "the attachment to be shown")
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back")


def test_a_client_goes_on_when_the_one_that_came_first_leaves(cluster, make_volume):
    volume = make_volume()
    one = cluster.nodes[0]
    first = Client(one.uri(volume))
    with Client(one.uri(volume)) as second, Client(one.uri(volume, tcp=True)) as third:
        first.close()
        # Long enough for a volume that nobody is thought to use to be given back.
        time.sleep(0.3)
        second.write(0, b"2" * BLOCK)
        assert third.read(0, BLOCK) == b"2" * BLOCK
        assert attached_to(cluster, volume) == ["n1"]
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back by the last")


def test_clients_come_and_go_and_none_is_put_out(cluster, make_volume):
    volume = make_volume()
    uri = cluster.nodes[0].uri(volume)

    def work(number):
        draw = random.Random(number)
        last = bytes(BLOCK)
        for _ in range(SESSIONS):
            with Client(uri) as client:
                for _ in range(draw.randrange(4)):
                    assert client.read(number * BLOCK, BLOCK) == last, f"client {number}"
                    last = draw.randbytes(BLOCK)
                    client.write(number * BLOCK, last)
                if draw.random() < 0.3:
                    client.socket.close()
            time.sleep(draw.random() * 0.02)

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, number) for number in range(WORKERS)]:
            done.result()
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back by the last")


def test_a_client_that_comes_while_another_leaves_waits(cluster, make_volume):
    volume = make_volume()
    for turn in range(12):
        with Client(cluster.nodes[turn % 3].uri(volume)) as client:
            assert client.read(0, BLOCK)[:1] == bytes([turn])
            client.write(0, bytes([turn + 1]) * BLOCK)


def test_who_had_a_volume_open_has_nothing_of_the_next_one_of_its_name(cluster, make_volume):
    volume = make_volume()
    one, two, _ = cluster.nodes
    before = Client(one.uri(volume))
    before.write(0, b"1" * BLOCK)
    cluster.cli("snapshot", "create", f"{volume}@then")
    reader = Client(two.uri(f"{volume}@then"))
    assert reader.read(0, 1) == b"1"
    cluster.delete_volume(volume)
    cluster.cli("volume", "create", volume, "64MiB", node=two)
    with Client(one.uri(volume)) as client:
        for write in range(3):
            with pytest.raises((NbdError, ConnectionError)):
                before.write(write * BLOCK, b"2" * BLOCK)
        assert client.read(0, 4 * BLOCK) == bytes(4 * BLOCK)
        cluster.cli("snapshot", "create", f"{volume}@then")
        with pytest.raises((NbdError, ConnectionError)):
            reader.read(0, 1)
        assert attached_to(cluster, volume) == ["n1"]
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back")


def test_shared_volumes_are_served_everywhere(cluster, make_volume):
    volume = make_volume("--shared")
    clients = [Client(node.uri(volume)) for node in cluster.nodes]
    for number, client in enumerate(clients):
        client.write(0, bytes([number + 1]) * BLOCK)
        assert all(other.read(0, 1) == bytes([number + 1]) for other in clients)
    # They are listed by number, and nodes have not got theirs in the order of their names.
    wait_until(lambda: sorted(attached_to(cluster, volume)) == ["n1", "n2", "n3"], 10, "three attachments")
    # One is cut off; the others go on.
    said = refused(cluster, "volume", "detach", volume, "--node", "n2")
    assert "is attached, so it is not detached" in said and "--force" in said, said
    clients[1].write(0, bytes([3]) * BLOCK)
    cluster.cli("volume", "detach", volume, "--node", "n2", "--force")
    with pytest.raises((NbdError, OSError)):
        clients[1].write(0, b"x" * BLOCK)
    for client in (clients[0], clients[2]):
        assert client.read(0, 1) == bytes([3])
        client.write(BLOCK, b"y" * BLOCK)
    for client in clients:
        client.close()


def test_what_was_attached_by_name_stays(cluster, make_volume):
    volume = make_volume()
    one, two, three = cluster.nodes
    cluster.cli("volume", "attach", volume, "--node", "n2", node=three)
    assert attached_to(cluster, volume) == ["n2"]
    for _ in range(2):
        with Client(two.uri(volume)) as client:
            client.write(0, b"1" * BLOCK)
    assert attached_to(cluster, volume) == ["n2"]
    assert "attached to node n2" in refused(cluster, "volume", "attach", volume, "--node", "n1")
    with pytest.raises(ConnectionError):
        Client(one.uri(volume))
    cluster.cli("volume", "attach", volume, "--node", "n1", "--force")
    with Client(one.uri(volume)) as client:
        assert client.read(0, 1) == b"1"
    cluster.cli("volume", "detach", volume)
    assert attached_to(cluster, volume) == []
    assert "not attached" in refused(cluster, "volume", "detach", volume)
    assert "nobody" in refused(cluster, "volume", "attach", volume, "--node", "nobody")


def test_force_cuts_off_one_volume_and_no_other(cluster, make_volume):
    mine, other = make_volume(), make_volume()
    one, two, _ = cluster.nodes
    ledger = Ledger(blocks=500)
    bystander = Writer(one.uri(other), ledger, seed=3)
    bystander.start()
    client = Client(one.uri(mine))
    client.write(0, b"old!" * 1024)
    wait_until(lambda: bystander.acks > 50, 60, "writes of the bystander")
    cluster.cli("volume", "attach", mine, "--node", "n2", "--force", node=two)
    with pytest.raises((NbdError, OSError)) as cut:
        for _ in range(100):
            client.write(0, b"late" * 1024)
    assert not isinstance(cut.value, NbdError) or cut.value.code == ESHUTDOWN
    client.close()
    with Client(two.uri(mine)) as client:
        assert client.read(0, 4) == b"old!"
        client.write(0, b"new!" * 1024)
        assert client.read(0, 4) == b"new!"
    goal = bystander.acks + 100
    wait_until(lambda: bystander.acks >= goal or not bystander.is_alive(), 60, "more writes of the bystander")
    bystander.finish()
    assert ledger.check(one.uri(other)) == []


class Flood(threading.Thread):
    """Sends writes of one value to all blocks, as fast as the connection takes them, and never looks back."""

    def __init__(self, uri, blocks, value):
        super().__init__(daemon=True)
        self.client = Client(uri, timeout_s=60)
        self.blocks, self.value = blocks, value
        self.sent = 0

    def run(self):
        try:
            while True:
                for block in range(self.blocks):
                    self.client.send(CMD_WRITE, block * BLOCK, data=self.value * BLOCK)
                    self.sent += 1
        except OSError:
            pass

    def outcome(self):
        """Reads all answers: the numbers of good and refused ones, until the connection ends."""
        good = refused = 0
        try:
            while True:
                _, error, _ = self.client.receive()
                assert error in (0, ESHUTDOWN), error
                good, refused = good + (error == 0), refused + (error != 0)
        except OSError:
            return good, refused


@pytest.mark.parametrize("turn", range(3))
def test_nothing_of_a_holder_that_stood_still_lands(cluster, make_volume, turn):
    """SIGSTOP in the middle of writes, the volume forced elsewhere and rewritten there, SIGCONT: no old write shows."""
    volume = make_volume()
    one, two, three = cluster.nodes
    blocks = 256
    flood = Flood(one.uri(volume), blocks, b"o")
    flood.start()
    wait_until(lambda: flood.sent > 300 * (turn + 1), 60, "writes under way")
    one.process.pause()
    try:
        cluster.cli("volume", "attach", volume, "--node", "n2", "--force", node=three)
        with Client(two.uri(volume)) as client:
            for block in range(blocks):
                client.write(block * BLOCK, b"n" * BLOCK)
            one.process.signal(signal.SIGCONT)
            good, refused_writes = flood.outcome()
            print(f"sent {flood.sent}, good {good}, refused {refused_writes}")
            assert flood.sent > good, "there was nothing in the way of being late"
            for _ in range(3):
                data = client.read(0, blocks * BLOCK)
                late = [block for block in range(blocks) if data[block * BLOCK] != ord("n")]
                assert late == [], "written by who had lost the volume"
                time.sleep(0.5)
    finally:
        one.process.signal(signal.SIGCONT)
    cluster.wait_healthy()
    cluster.cli("volume", "detach", volume)
    with Client(one.uri(volume)) as client:
        assert set(client.read(0, blocks * BLOCK)) == {ord("n")}


def test_a_dead_gateway_gives_way_soon(cluster, make_volume):
    volume = make_volume()
    one, two, _ = cluster.nodes
    client = Client(one.uri(volume))
    client.write(0, b"1" * BLOCK)
    one.kill()
    started = time.monotonic()
    with Client(two.uri(volume)) as client:
        assert client.read(0, 1) == b"1"
        took = time.monotonic() - started
    one.start()
    cluster.wait_healthy()
    print(f"{took:.2f} s")
    assert took < 20


def test_a_client_that_is_killed_gives_way_at_once(cluster, make_volume):
    """It had a write under way and said no goodbye: the kernel closes its connection."""
    volume = make_volume()
    one, two, _ = cluster.nodes
    program = (
        "import sys\nfrom tools.harness.nbd import CMD_WRITE, Client\n"
        "client = Client(sys.argv[1])\nclient.write(0, b'1' * 4096)\nprint('open', flush=True)\n"
        "while True:\n    client.send(CMD_WRITE, 4096, data=b'2' * 4096)\n    client.receive()\n"
    )
    words = [sys.executable, "-c", program, one.uri(volume)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout.readline() == "open\n"
            assert attached_to(cluster, volume) == ["n1"]
        finally:
            process.kill()
    # A client waits up to 8 s for a volume that another is about to give back (docs/decisions/0009).
    with Client(two.uri(volume)) as client:
        assert client.read(0, BLOCK) == b"1" * BLOCK
        assert attached_to(cluster, volume) == ["n2"]


@pytest.mark.root
def test_a_client_whose_machine_is_gone_gives_way(cluster, make_volume):
    """It was switched off and on: nothing is said until the node asks, and nobody knows of the connection then."""
    volume = make_volume()
    one, two, _ = cluster.nodes
    client = Client(one.uri(volume, tcp=True))
    client.write(0, b"1" * BLOCK)
    time.sleep(1)  # Its kernel has acknowledged the answer: what is sent to nobody is answered by a reset.
    try:
        client.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError:
        client.close()
        pytest.skip("it takes CAP_NET_ADMIN to end a connection without a word")
    client.socket.close()
    time.sleep(1)
    assert attached_to(cluster, volume) == ["n1"], "somebody has said that the client is gone"
    wait_until(lambda: attached_to(cluster, volume) == [], PEER_SILENT_MAX_S + 10, "the volume to be given back")
    with Client(two.uri(volume)) as client:
        assert client.read(0, BLOCK) == b"1" * BLOCK


def test_a_snapshot_is_opened_while_the_configuration_is_away(cluster, make_volume):
    """A snapshot is attached to nobody, so nothing has to be written down. A volume has to be."""
    volume = make_volume()
    one, two, _ = cluster.nodes
    with Client(one.uri(volume)) as client:
        client.write(0, b"1" * BLOCK)
        cluster.cli("snapshot", "create", f"{volume}@then")
        client.write(0, b"2" * BLOCK)
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back")
    for node in cluster.nodes:
        Client(node.uri(f"{volume}@then")).close()  # From here on the node knows the name.
    cluster.etcd.pause()
    try:
        for node in cluster.nodes:
            with Client(node.uri(f"{volume}@then")) as old:
                assert old.read(0, BLOCK) == b"1" * BLOCK
        with pytest.raises((ConnectionError, TimeoutError)):
            Client(two.uri(volume), timeout_s=15)
    finally:
        cluster.etcd.signal(signal.SIGCONT)
    with Client(two.uri(volume)) as client:
        assert client.read(0, BLOCK) == b"2" * BLOCK


def test_names_are_refused_while_the_configuration_is_away(cluster, make_volume):
    volume = make_volume()
    one = cluster.nodes[0]
    with Client(one.uri(volume)) as client:
        cluster.etcd.pause()
        try:
            with pytest.raises(ConnectionError) as refusal:
                Client(one.uri("nobody-made-it"))
            assert "no export of this name" in str(refusal.value)
            client.write(0, b"1" * BLOCK)
            with Client(one.uri(volume)) as second:
                assert second.read(0, 1) == b"1"
        finally:
            cluster.etcd.signal(signal.SIGCONT)


@pytest.mark.parametrize("options", [(), ("--shared",)])
def test_a_volume_that_nobody_has_is_refused_while_the_configuration_is_away(cluster, make_volume, options):
    """Soon, and with the reason. Also a shared one: without a record nobody could end that attachment (0009)."""
    volume = make_volume(*options)
    one = cluster.nodes[0]
    cluster.etcd.pause()
    try:
        started = time.monotonic()
        with pytest.raises(ConnectionError) as refusal:
            Client(one.uri(volume))
        took = time.monotonic() - started
    finally:
        cluster.etcd.signal(signal.SIGCONT)
    text = str(refusal.value)
    print(f"{took:.1f} s: {text}")
    assert f"attaching volume '{volume}' to node n1" in text and "etcd" in text
    assert "what is attached already goes on" in text
    assert took < 30, "longer than the configuration is asked for"
    wait_until(lambda: opens(one.uri(volume)), 30, "the volume can be had again")
    wait_until(lambda: attached_to(cluster, volume) == [], 30, "nothing of the refused client is left")


def test_groups_that_can_not_confirm_are_named(cluster, make_volume):
    """With one copy, nobody can say what a primary that stands still will do."""
    volume = make_volume("--copies", "1")
    one, two, _ = cluster.nodes
    client = Client(one.uri(volume))
    for chunk in range(16):
        client.write(chunk << 22, b"1" * BLOCK)
    one.process.pause()
    try:
        text = refused(cluster, "volume", "attach", volume, "--node", "n2", "--force", node=two)
        assert "placement group" in text and "not kept out everywhere" in text
    finally:
        one.process.signal(signal.SIGCONT)
    cluster.wait_healthy()
    cluster.cli("volume", "attach", volume, "--node", "n2", "--force", node=two)
    assert not cluster.json("volume", "show", volume)["fence_due"]
    with pytest.raises((NbdError, OSError)):
        client.write(0, b"2" * BLOCK)
    with Client(two.uri(volume)) as client:
        assert client.read(0, 1) == b"1"
