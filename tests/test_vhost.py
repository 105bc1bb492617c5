"""The vhost-user door of real nodes, through a client of a few lines. With QEMU and a kernel: tests/guest_vhost.py."""

import grp
import os
import random
import socket
import stat
import struct

import pytest

from tools.harness.process import wait_until
from tools.harness.vhost import (
    DISCARD,
    FLUSH_REQUEST,
    GET_FEATURES,
    GET_ID,
    IN,
    OUT,
    READ_ONLY,
    WRITE_ZEROES,
    Client,
    Failed,
)

MIB = 2**20


@pytest.fixture(scope="module")
def door(module_cluster):
    """A node of three shards with sockets for volumes, one of which is not there."""
    cluster = module_cluster(start=False, nodes=1)
    cluster.sockets = {name: cluster.folder / f"{name}.sock" for name in ["vol1", "vol2", "vol1@then", "none"]}
    options = [word for name, path in cluster.sockets.items() for word in ["--vhost-socket", f"{name}={path}"]]
    cluster.nodes[0].options = [*options, "--shards", "3", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "64MiB", copies=1)
    cluster.create_volume("vol2", "64MiB", copies=1)
    return cluster


@pytest.fixture
def client(door):
    made = []

    def connect(volume="vol1", **options):
        made.append(Client(door.sockets[volume], **options))
        return made[-1]

    yield connect
    for one in made:
        one.close()


def test_what_it_says_of_itself(door, client):
    one = client().start()
    space = one.config(96)
    assert struct.unpack_from("<Q", space) == (64 * MIB // 512,)
    assert struct.unpack_from("<I", space, 20) == (512,) and space[60:] == bytes(36)
    assert not one.offered & READ_ONLY
    serial = one.rings[0].do(GET_ID, 0, reads=20).rstrip(b"\0")
    assert len(serial) == 16 and int(serial, 16)
    shown = door.json("volume", "show", "vol1")
    addresses = [end["address"] for end in shown["endpoints"] if end["protocol"] == "vhost-user"]
    assert addresses == [f"vol1=unix:{door.sockets['vol1']}"]


@pytest.mark.parametrize("event_idx", [True, False])
def test_what_is_written_is_read_by_the_next_client(client, event_idx):
    one = client(event_idx=event_idx).start()
    (ring,) = one.rings
    written = {}
    for sector, size in [(0, 512), (1, 1024), (8, 4096), (1000, 64 << 10), (64 * MIB // 512 - 1, 512)]:
        written[sector] = os.urandom(size)
        ring.write(sector, written[sector])
    ring.do(FLUSH_REQUEST, 0)
    assert all(ring.read(sector, len(data)) == data for sector, data in written.items())
    one.close()
    two = client(event_idx=event_idx).start()
    assert all(two.rings[0].read(sector, len(data)) == data for sector, data in written.items())


def test_discards_and_zeroes(client):
    (ring,) = client().start().rings
    for kind in [DISCARD, WRITE_ZEROES]:
        ring.write(0, b"x" * (32 << 10))
        ring.ranged(kind, 8, 16)
        assert ring.read(0, 32 << 10) == b"x" * 4096 + bytes(8192) + b"x" * (20 << 10)


def test_requests_that_can_not_be_done_fail_alone(client):
    (ring,) = client().start().rings
    last = 64 * MIB // 512
    for kind, sector, data, reads in [(IN, last, b"", 512), (OUT, last - 1, bytes(1024), 0), (IN, 0, b"", 100)]:
        with pytest.raises(Failed, match="status 1"):
            ring.do(kind, sector, data, reads)
    with pytest.raises(Failed, match="status 2"):
        ring.do(99, 0)
    ring.write(0, bytes(512))


def test_many_requests_at_one_kick_on_several_queues(client):
    """Each place has one owner among the queues; what is read in the end is what was written last."""
    one = client(queues=4, slot=4096).start()
    chance, last = random.Random(7), {}
    for _ in range(20):
        for ring in one.rings:
            places = chance.sample(range(200), 40)
            for place in places:
                last[place * 4 + ring.number] = data = chance.randbytes(4096)
                ring.submit(OUT, 8 * (place * 4 + ring.number), data, kick=False)
            ring.ring()
        for ring in one.rings:
            for _ in range(40):
                ring.reap()
    reader = one.rings[0]
    assert all(reader.read(8 * place, 4096) == data for place, data in last.items())


def test_a_snapshot_is_read_only(door, client):
    (ring,) = client("vol2").start().rings
    ring.write(0, b"a" * 512)
    door.cli("snapshot", "create", "vol2@then")
    ring.write(0, b"b" * 512)
    # Its own socket was there before it was.
    door.cli("snapshot", "create", "vol1@then")
    snapshot = client("vol1@then")
    assert snapshot.offered & READ_ONLY
    (frozen,) = snapshot.start().rings
    frozen.read(0, 512)
    with pytest.raises(Failed, match="status 1"):
        frozen.write(0, bytes(512))


def test_a_second_client_takes_the_place_of_the_first(client):
    one = client().start()
    one.rings[0].write(0, b"1" * 512)
    two = client().start()
    assert two.rings[0].read(0, 512) == b"1" * 512
    with pytest.raises(ConnectionError):
        one.rings[0].submit(IN, 0, reads=512)
        one.rings[0].reap()


def test_a_ring_that_is_broken_ends_one_connection(door, client):
    one, two = client("vol1").start(), client("vol2").start()
    struct.pack_into("<H", one.memory, one.rings[0].available_at + 2, 999)
    one.rings[0].ring()
    with pytest.raises(ConnectionError):
        one.rings[0].reap()
    wait_until(lambda: "999 requests are available" in door.nodes[0].log(), 10, "a line about it")
    two.rings[0].read(0, 512)


def test_a_socket_without_its_volume_says_why(door):
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(10)
        one.connect(str(door.sockets["none"]))
        one.sendall(struct.pack("=III", GET_FEATURES, 1, 0))
        assert one.recv(1) == b""
    wait_until(lambda: "'none', and there is no such volume" in door.nodes[0].log(), 10, "a line about it")


def test_a_kill_of_the_node_loses_no_request(door, client):
    """What was under way when the node was killed is done by the next one, though nobody asks again."""
    one = client(slot=4096).start()
    (ring,) = one.rings
    chance, expected = random.Random(3), {}
    for round_number in range(3):
        owner = {}
        for place in chance.sample(range(1000), 40):
            expected[place] = chance.randbytes(4096)
            owner[ring.submit(OUT, 8 * place, expected[place], kick=False)] = place
        ring.ring()
        for _ in range(10 * round_number):
            head, _ = ring.reap()
            owner.pop(head)
        door.nodes[0].kill()
        door.nodes[0].start()
        door.wait_healthy()
        one.close()
        one.connect()
        one.start()
        while owner:
            head, _ = ring.reap()
            owner.pop(head)
    assert all(ring.read(8 * place, 4096) == data for place, data in expected.items())
    assert ring.stop() == ring.seen


def test_sockets_have_their_mode_and_group(door):
    mode = stat.S_IMODE(os.stat(door.sockets["vol1"]).st_mode)
    assert mode == 0o600
    node = door.nodes[0]
    node.stop()
    group = grp.getgrgid(os.getgid()).gr_name
    node.options += ["--vhost-socket-group", group, "--vhost-socket-mode", "620"]
    node.start()
    door.wait_healthy()
    for path in door.sockets.values():
        found = os.stat(path)
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o620, os.getgid())


def test_a_client_is_told_that_its_volume_has_grown(door, client):
    one = client("vol2").start()
    channel = one.send_channel()
    assert struct.unpack_from("<Q", one.config(8)) == (64 * MIB // 512,)
    door.cli("volume", "resize", "vol2", "96MiB")
    # VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, of version 1 and without a payload.
    assert channel.recv(12, socket.MSG_WAITALL) == struct.pack("=III", 2, 1, 0)
    assert struct.unpack_from("<Q", one.config(8)) == (96 * MIB // 512,)
    one.rings[0].write(95 * MIB // 512, b"x" * 512)
    channel.close()
