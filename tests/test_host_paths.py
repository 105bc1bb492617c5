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
OPTIMIZED, NON_OPTIMIZED = 0, 1
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


def write(cluster, paths, number, block, content):
    """Writes through the node of this number as hosts do: who loses the path logs in again and sends the write anew."""
    deadline = time.monotonic() + MOVED_WITHIN_S
    while True:
        try:
            return paths[number].write(block, content)
        except OSError:
            assert time.monotonic() < deadline, "the writes do not come here"
            paths[number].socket.close()
            paths[number] = path(cluster, number)


def writes_at(cluster, node=2):
    """The names of the nodes through which hosts write, and of those through which they read alone."""
    entries = cluster.json("volume", "show", "vol1", node=cluster.nodes[node])["attachments"]
    names = lambda reads: sorted(entry["node_name"] for entry in entries if entry["reads_only"] == reads)  # noqa: E731
    return names(False), names(True)


def test_a_host_writes_through_one_node_and_reads_through_all(cluster):
    paths = [path(cluster, 0), path(cluster, 1)]
    first, second = cluster.nodes[0].name, cluster.nodes[1].name
    assert writes_at(cluster) == ([first], [second])
    groups = [at.port_group() for at in paths]
    assert [state for _, state in groups] == [OPTIMIZED, NON_OPTIMIZED]
    assert groups[0][0] != groups[1][0], "each node is a group of its own"
    paths[0].write(0, data("a"))
    assert paths[1].read(0, BLOCKS) == data("a")
    assert writes_at(cluster) == ([first], [second]), "reads move nothing"
    with pytest.raises(OSError):
        paths[1].write(0, data("x"))
    write(cluster, paths, 1, 0, data("b"))
    assert writes_at(cluster)[0] == [second]
    assert paths[0].is_closed(MOVED_WITHIN_S), "the former path is lost"
    paths[0] = path(cluster, 0)
    assert writes_at(cluster) == ([second], [first]), "and comes back to be read"
    assert [at.port_group()[1] for at in paths] == [NON_OPTIMIZED, OPTIMIZED]
    assert paths[0].read(0, BLOCKS) == data("b")
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
    one, paths = path(cluster, 0), [None, path(cluster, 1)]
    for spot in range(SPOTS):
        one.write(spot * CHUNK_BLOCKS // 2, data("0"))
    process = cluster.nodes[0].process
    process.pause()
    for spot in range(SPOTS):
        one.send_write(spot * CHUNK_BLOCKS // 2, data("a"))
    started = time.monotonic()
    for spot in range(SPOTS):
        write(cluster, paths, 1, spot * CHUNK_BLOCKS // 2, data("b"))
    print(f"the other path took over within {time.monotonic() - started:.1f} s")
    process.resume()
    for _ in range(5):
        for spot in range(SPOTS):
            assert paths[1].read(spot * CHUNK_BLOCKS // 2, BLOCKS) == data("b"), spot
        time.sleep(0.5)
    assert one.is_closed(MOVED_WITHIN_S)
    assert path(cluster, 0).read(0, BLOCKS) == data("b")


def test_a_write_of_a_path_that_was_given_up_does_not_land_either(cluster):
    """The node where the host reads stands still with a write, and the host goes on where it writes all along."""
    one, two = path(cluster, 0), path(cluster, 1)
    process = cluster.nodes[1].process
    process.pause()
    two.send_write(0, data("a"))
    one.write(0, data("b"))
    two.socket.close()
    process.resume()
    for _ in range(10):
        paths = [path(cluster, 0)]
        assert paths[0].read(0, BLOCKS) == data("b")
        paths[0].socket.close()
        time.sleep(0.3)


def test_a_host_goes_on_when_its_node_is_killed(cluster):
    paths = [path(cluster, 0), path(cluster, 1)]
    paths[0].write(0, data("a"))
    cluster.nodes[0].kill()
    write(cluster, paths, 1, 0, data("b"))
    assert paths[1].read(0, BLOCKS) == data("b")
    cluster.nodes[0].start()
    paths[0] = path(cluster, 0)
    assert paths[0].read(0, BLOCKS) == data("b")
    write(cluster, paths, 0, 0, data("c"))
    assert paths[1].is_closed(MOVED_WITHIN_S)
    assert paths[0].read(0, BLOCKS) == data("c")


def test_a_host_that_uses_its_paths_in_turn_is_slow_and_not_wrong(cluster):
    paths = [path(cluster, 0), path(cluster, 1)]
    for turn in range(6):
        write(cluster, paths, turn % 2, 0, data(str(turn)))
        assert paths[turn % 2].read(0, BLOCKS) == data(str(turn))


def test_the_same_over_nvme(cluster):
    admins = []  # A controller ends with its admin queue.

    def queue(number):
        admins.append(nvme.controller(cluster.nvme[number], "vol1"))
        return nvme.io_queue(cluster.nvme[number], "vol1", admins[-1], 1)

    one, two = queue(0), queue(1)
    assert [admin.access_state() for admin in admins] == [1, 2], "optimized, and not"
    one.write(0, data("a"))
    assert two.read(0, BLOCKS * 512) == data("a")
    process = cluster.nodes[0].process
    process.pause()
    with pytest.raises(OSError):
        two.write(0, data("x"))

    def writes():
        try:
            again = queue(1)
            again.write(0, data("b"))
            # Another shard may hear of it a moment later, and closes what it has.
            return again if admins[-1].access_state() == 1 else None
        except (OSError, nvme.Failed):
            return None

    two = wait_until(writes, MOVED_WITHIN_S, "the writes to come to the other node")
    process.resume()
    assert two.read(0, BLOCKS * 512) == data("b")
    with pytest.raises((OSError, nvme.Failed)):
        one.write(0, data("c"))
    assert two.read(0, BLOCKS * 512) == data("b")


def test_a_discovery_at_any_node_names_all_of_them(cluster):
    for address in cluster.nvme:
        assert sorted(f"{host}:{port}" for _, host, port in nvme.listed(address)) == sorted(cluster.nvme)
    groups = {}
    for number, address in enumerate(cluster.iscsi):
        with Session(address, None, discovers=True).log_in() as session:
            portals = dict(value.split(",") for key, value in session.targets() if key == "TargetAddress")
        assert sorted(portals) == sorted(cluster.iscsi)
        groups[number] = portals
        with path(cluster, number) as session:
            assert portals[address] == str(session.port_group()[0])
    assert groups[0] == groups[1]
