"""Nodes that stop and come back one after the other while clients write; whole clusters that do."""

import os
import time

import pytest

from tools.harness.acked_writer import BLOCK, Ledger, Writer
from tools.harness.nbd import CMD_WRITE, Client
from tools.harness.run import run

CHUNK = 4 << 20
CHUNKS_A_TURN = 6000


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.long), "kill"], ids=["SIGTERM", "SIGKILL"])
def test_each_node_restarts_while_a_client_writes(each_cluster, how):
    """The client sits on a gateway that stays; its writes wait at most, and each acknowledged one is kept."""
    ledger = Ledger(blocks=1500, stride=128)
    for node in each_cluster.nodes:
        gateway = each_cluster.nodes[node.number % 3]
        writer = Writer(gateway.uri(), ledger, seed=node.number)
        writer.start()
        writer.go_on()
        getattr(node, how)()
        node.start()
        each_cluster.wait_healthy()
        writer.go_on()
        writer.finish()
        for reader in each_cluster.nodes:
            faults = ledger.check(reader.uri())
            assert not faults, f"{node.name} restarted, read through {reader.name}: {faults[:5]}"


def test_a_node_whose_file_system_is_full_starts_and_goes_on_when_there_is_room(make_cluster, folder):
    cluster = make_cluster(start=False, device_size="512MiB")
    node = cluster.nodes[2]
    image, ballast = folder / "image", node.data / "ballast"
    node.data.mkdir()
    run("truncate", "-s", "700M", image)
    run("mkfs.ext4", "-q", "-m", "0", image)
    run("mount", "-o", "loop", image, node.data)
    try:
        cluster.start()
        cluster.cli("class", "create", "vast", "--copies", "2", "--overcommit", "1000")
        cluster.cli("volume", "create", "vol1", "256GiB", "--class", "vast")
        cluster.wait_healthy()
        ledger = Ledger(blocks=1500, stride=128)
        writer = Writer(cluster.first.uri(), ledger, seed=1)
        writer.start()
        missed = 0
        for turn in range(10):
            if turn >= 2 and missed > 0:
                break
            writer.go_on()
            fill(ballast)
            (node.kill if turn % 2 else node.stop)()
            if turn > 0:
                give_up_reserve(node)
            # What the process has given back when it ended.
            fill(ballast)
            node.start()
            writer.go_on()
            if turn > 0:
                write_to_new_chunks(cluster.first.uri(), turn)
            # A map's file may have room inside, so that the node does without any; then another turn shows what it says
            # when there is none.
            if lacks_room(cluster, node):
                assert turn > 0, "room for the map was reserved when the device was made"
                check_that_room_is_missed(cluster, node)
                missed += 1
            ballast.unlink()
            cluster.wait_healthy()
            assert device_of(cluster, node)["problem"] is None
            writer.go_on()
        writer.finish()
        assert missed > 0
        assert ledger.check(node.uri()) == []
    finally:
        run("umount", "--lazy", node.data)


def give_up_reserve(node):
    """Leaves a node's maps as on a file system that can't reserve room: what is behind their ends is free."""
    for path in node.data.rglob("map.redb"):
        size = path.stat().st_size
        os.truncate(path, size + 4096)
        os.truncate(path, size)


def write_to_new_chunks(uri, turn):
    """A block in each of many chunks: each chunk has a leaf of its own in the map, which grows by so many."""
    first = turn * CHUNKS_A_TURN
    with Client(uri) as client:
        for at in range(first, first + CHUNKS_A_TURN, 64):
            chunks = range(at, min(at + 64, first + CHUNKS_A_TURN))
            for chunk in chunks:
                client.send(CMD_WRITE, chunk * CHUNK, data=bytes([turn]) * BLOCK)
            for _ in chunks:
                _, error, _ = client.receive()
                assert error == 0, error


def lacks_room(cluster, node):
    """Whether the device of a node that has just started says within some seconds that it lacks room."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if "make room" in (device_of(cluster, node)["problem"] or ""):
            return True
        time.sleep(0.1)
    return False


def device_of(cluster, node):
    return next(device for device in cluster.json("device", "list") if device["node_name"] == node.name)


def check_that_room_is_missed(cluster, node):
    """Wherever people look they read that the device waits, what for, and what to do."""
    device = device_of(cluster, node)
    assert device["status"] in ("opening", "open") and device["failure"] is None, device
    assert "file system is full: make room" in (device["problem"] or ""), device
    assert "make room" in node.log()
    name = f"device {device['id']} ({device['name']} of node {node.name})"
    problems = cluster.json_of_unhealthy("status")["problems"]
    assert f"{name}: {device['problem']}" in problems, problems
    assert device["problem"] in cluster.cli("device", "list")


def fill(path):
    """Takes all the room of a file system."""
    with path.open("wb", buffering=0) as ballast:
        for size in (1 << 20, 1):
            with pytest.raises(OSError, match="No space left"):
                while True:
                    ballast.write(bytes(size))


def test_the_gateway_of_a_client_restarts(cluster):
    """The client loses its connection and makes a new one; what was acknowledged before is there."""
    ledger = Ledger(blocks=500, stride=128)
    for how in ("stop", "kill"):
        writer = Writer(cluster.first.uri(), ledger, seed=3)
        writer.start()
        writer.go_on()
        getattr(cluster.first, how)()
        writer.join_cut_off()
        cluster.first.start()
        cluster.wait_healthy()
        assert ledger.check(cluster.first.uri()) == []


def test_a_paused_node_goes_on(cluster):
    """SIGSTOP for some seconds: slow at most, never wrong, whichever copies serve meanwhile."""
    ledger = Ledger(blocks=500, stride=128)
    writer = Writer(cluster.nodes[1].uri(), ledger)
    writer.start()
    writer.go_on()
    cluster.nodes[2].process.pause()
    try:
        writer.join(3)
    finally:
        cluster.nodes[2].process.resume()
    writer.go_on()
    writer.finish()
    cluster.wait_healthy()
    for node in cluster.nodes:
        assert ledger.check(node.uri()) == []


def test_data_is_there_after_a_clean_stop_of_everything(each_cluster, folder):
    uri = each_cluster.first.uri()
    source = folder / "source"
    run("dd", "if=/dev/urandom", f"of={source}", "bs=1M", "count=64", "status=none")
    run("nbdcopy", source, uri)
    for _ in range(2):
        each_cluster.stop()
        each_cluster.start()
        for node in each_cluster.nodes:
            run("nbdcopy", node.uri(), folder / "back")
            run("cmp", "--bytes=67108864", source, folder / "back")


def test_nodes_start_in_any_order(make_cluster):
    cluster = make_cluster()
    cluster.create_volume()
    run("qemu-io", "-f", "raw", "-c", "write -P 77 0 8M", cluster.first.uri())
    cluster.stop()
    for node in reversed(cluster.nodes):
        node.start()
    cluster.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "read -P 77 0 8M", cluster.nodes[2].uri())
