"""Hosts that come to one volume through several nodes: what a host has sent to one of them never lands over what it has
written through another since (docs/decisions/0048-paths-of-a-host.md)."""

import time

import pytest

from tools.harness import nvme
from tools.harness.cluster import HOST
from tools.harness.iscsi import IscsiError, Session
from tools.harness.process import free_port, wait_until

TARGET = "iqn.2026-01.io.azekura:vol1"
NAME, OTHER = "iqn.2000-01.example:host", "iqn.2000-01.example:other"
BLOCKS = 8
SPOTS = 64
CHUNK_BLOCKS = (4 << 20) // 512
# A host's writes come to a node once a second at most, and the fence waits for the groups.
MOVED_WITHIN_S = 30


def data(letter):
    return letter.encode() * (BLOCKS * 512)


@pytest.fixture
def cluster(make_cluster):
    """Three nodes and a configuration that does not stand still with one of them; two have the doors, of two shards."""
    cluster = make_cluster(start=False, config="etcd", nodes=3, device_size="512MiB", node_options=["--devices", 2])
    cluster.iscsi = [f"{HOST}:{free_port()}" for _ in range(2)]
    cluster.nvme = [f"{HOST}:{free_port()}" for _ in range(2)]
    for node, iscsi, nvme_address in zip(cluster.nodes, cluster.iscsi, cluster.nvme, strict=False):
        node.options = ["--iscsi", iscsi, "--nvme", nvme_address, "--shards", 2]
    cluster.start()
    cluster.create_volume("vol1", "512MiB")
    cluster.wait_healthy()
    return cluster


def path(cluster, number, name=NAME):
    """A host's session at the node of this number, counted from 0, once it can be had."""
    session = None

    def logs_in():
        nonlocal session
        try:
            session = Session(cluster.iscsi[number], TARGET, name=name).log_in()
        except (OSError, IscsiError):
            return False
        return True

    wait_until(logs_in, MOVED_WITHIN_S, "the login")
    session.attentions()
    return session


def writes_at(cluster, node=2):
    """The names of the nodes through which hosts write, and of those through which they read alone."""
    entries = cluster.json("volume", "show", "vol1", node=cluster.nodes[node])["attachments"]
    names = lambda reads: sorted(entry["node_name"] for entry in entries if entry["reads_only"] == reads)  # noqa: E731
    return names(False), names(True)


def test_a_host_writes_through_one_node_and_reads_through_all(cluster):
    one, two = path(cluster, 0), path(cluster, 1)
    first, second = cluster.nodes[0].name, cluster.nodes[1].name
    assert writes_at(cluster) == ([first], [second])
    one.write(0, data("a"))
    assert two.read(0, BLOCKS) == data("a")
    assert writes_at(cluster) == ([first], [second]), "reads move nothing"
    two.write(0, data("b"))
    assert writes_at(cluster) == ([second], [])
    assert one.is_closed(MOVED_WITHIN_S), "the former path is lost"
    one = path(cluster, 0)
    assert writes_at(cluster) == ([second], [first]), "and comes back to be read"
    assert one.read(0, BLOCKS) == data("b")
    shown = cluster.cli("volume", "show", "vol1")
    assert f"for {NAME}, which writes through another node" in shown, shown


def test_an_exclusive_volume_is_for_one_host(cluster):
    one, two = path(cluster, 0), path(cluster, 1)
    stranger = Session(cluster.iscsi[1], TARGET, name=OTHER)
    assert stranger.login_status(MOVED_WITHIN_S) not in (0, None)
    one.write(0, data("a"))
    for session in (one, two):
        session.socket.close()
    path(cluster, 1, OTHER).write(0, data("c"))


def test_what_a_node_that_stands_still_has_been_sent_does_not_land(cluster):
    one, two = path(cluster, 0), path(cluster, 1)
    for spot in range(SPOTS):
        one.write(spot * CHUNK_BLOCKS // 2, data("0"))
    process = cluster.nodes[0].process
    process.pause()
    for spot in range(SPOTS):
        one.send_write(spot * CHUNK_BLOCKS // 2, data("a"))
    started = time.monotonic()
    for spot in range(SPOTS):
        two.write(spot * CHUNK_BLOCKS // 2, data("b"))
    print(f"the other path took over within {time.monotonic() - started:.1f} s")
    process.resume()
    for _ in range(5):
        for spot in range(SPOTS):
            assert two.read(spot * CHUNK_BLOCKS // 2, BLOCKS) == data("b"), spot
        time.sleep(0.5)
    assert one.is_closed(MOVED_WITHIN_S)
    assert path(cluster, 0).read(0, BLOCKS) == data("b")


def test_a_host_goes_on_when_its_node_is_killed(cluster):
    one, two = path(cluster, 0), path(cluster, 1)
    one.write(0, data("a"))
    cluster.nodes[0].kill()
    two.write(0, data("b"))
    assert two.read(0, BLOCKS) == data("b")
    cluster.nodes[0].start()
    one = path(cluster, 0)
    assert one.read(0, BLOCKS) == data("b")
    one.write(0, data("c"))
    assert two.is_closed(MOVED_WITHIN_S)
    assert one.read(0, BLOCKS) == data("c")


def test_a_host_that_uses_its_paths_in_turn_is_slow_and_not_wrong(cluster):
    paths = [path(cluster, 0), path(cluster, 1)]
    for turn in range(6):
        number = turn % 2
        try:
            paths[number].write(0, data(str(turn)))
        except OSError:
            paths[number] = path(cluster, number)
            paths[number].write(0, data(str(turn)))
        assert paths[number].read(0, BLOCKS) == data(str(turn))


def test_the_same_over_nvme(cluster):
    queues = []
    for address in cluster.nvme:
        admin = nvme.controller(address, "vol1")
        queues.append((admin, nvme.io_queue(address, "vol1", admin, 1)))
    (_, one), (_, two) = queues
    one.write(0, data("a"))
    assert two.read(0, BLOCKS * 512) == data("a")
    process = cluster.nodes[0].process
    process.pause()
    two.write(0, data("b"))
    process.resume()
    assert two.read(0, BLOCKS * 512) == data("b")
    with pytest.raises((OSError, nvme.Failed)):
        one.write(0, data("c"))
    assert two.read(0, BLOCKS * 512) == data("b")
