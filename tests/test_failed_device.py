"""A device fails while its node lives: that is told, and its copies get new homes. Clients notice nothing.

The configuration is in etcd: the embedded server would go down with its node.
"""

import json
import random
import shutil
import subprocess
import time

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.cluster import run_cli
from tools.harness.device import find_blocks, flip_bit, log_files
from tools.harness.nbd import Client
from tools.harness.process import wait_until

GROUPS = 64
BLOCK = 4096
CHUNK = 4 << 20
RUN_BLOCKS = 64
RUNS = 16


@pytest.fixture
def cluster(four_nodes):
    return four_nodes


def device_of(cluster, node):
    return next(device for device in cluster.json("device", "list") if device["node_name"] == node.name)


def healthy(cluster):
    return run_cli("status", "--json", api=cluster.first.api).returncode == 0


def check_everywhere(nodes, ledger, when):
    for reader in nodes:
        faults = ledger.check(reader.uri())
        assert not faults, f"{when}, read through {reader.name}: {faults[:5]}"


def by_number(cluster, number):
    return next(device for device in cluster.json("device", "list") if device["id"] == number)


def all_copies_elsewhere(cluster, number):
    assert by_number(cluster, number)["groups"] == 0

    # A copy that was slow for a moment may be left behind and be back a moment later, and while a primary hands over
    # its group does not serve: health may come and go until the moves have ended.
    def each_group_is_healthy():
        return json.loads(run_cli("status", "--json", api=cluster.first.api).stdout)["groups"] == {"healthy": GROUPS}

    wait_until(each_group_is_healthy, 60, "every group to be healthy")
    groups = cluster.json("group", "list")
    assert not [group for group in groups if number in group["members"]]
    # A group on its way to a device that came in the place of the lost one has three copies until it has moved.
    wait_until(lambda: all(len(group["in_sync"]) == 2 for group in cluster.json("group", "list")), 60, "moves to end")


def set_immutable(path, immutable):
    """From then on the kernel refuses writes to the file, also of those who have it open. False where it can't."""
    command = ["chattr", "+i" if immutable else "-i", str(path)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.root
def test_a_device_that_refuses_writes(cluster):
    gateway, node = cluster.nodes[0], cluster.nodes[3]
    log = log_files(node)[0]
    cluster.cli("cluster", "set", "rehome-after", "never")
    ledger = Ledger(blocks=1500, stride=128)
    writer = Writer(gateway.uri(), ledger, seed=1)
    writer.start()
    writer.go_on(500)
    if not set_immutable(log, True):
        writer.finish()
        pytest.skip("this file system knows no immutable files")
    try:
        wait_until(lambda: device_of(cluster, node)["status"] == "failed", 60, "the device's failure to be noticed")
        writer.go_on(500)
    finally:
        set_immutable(log, False)
    device = device_of(cluster, node)
    assert device["failure"] == "stopped" and "Operation not permitted" in device["problem"], device
    problems = cluster.json_of_unhealthy("status")["problems"]
    assert any(f"device {device['id']}" in problem and "has failed" in problem for problem in problems), problems
    assert all(alive["alive"] for alive in cluster.json_of_unhealthy("status")["nodes"])
    time.sleep(5)
    assert device_of(cluster, node)["groups"] > 0, "moved although that is forbidden"
    cluster.cli("cluster", "set", "rehome-after", "10s")
    wait_until(lambda: healthy(cluster), 180, "health without the device")
    all_copies_elsewhere(cluster, device["id"])
    # Groups may be handed over for balance meanwhile, and are not healthy for that moment.
    notes = cluster.json_of_unhealthy("status")["notes"]
    assert any("has failed, and nothing is missing" in note for note in notes), notes
    writer.go_on()
    writer.finish()
    check_everywhere(cluster.nodes, ledger, "the device has failed")

    # The file can be written again: after a start of its node the device gets its share.
    node.stop()
    node.start()
    wait_until(lambda: device_of(cluster, node)["groups"] == GROUPS // 2, 180, "its share")
    cluster.wait_healthy()
    assert device_of(cluster, node)["failure"] is None
    check_everywhere(cluster.nodes, ledger, "the device is back")


def test_groups_that_nobody_uses_are_not_called_unserved(cluster):
    """They would serve at the first request, and do; only those are unserved that have no copy left."""
    gateway, dead, node = cluster.nodes[1], cluster.nodes[2], cluster.nodes[3]
    cluster.cli("cluster", "set", "rehome-after", "never")
    with Client(gateway.uri()) as client:
        for chunk in range(GROUPS):
            client.write(chunk * CHUNK, bytes([chunk]) * BLOCK)
    wait_until(lambda: not cluster.json("volume", "show", "vol1")["attachments"], 60, "the volume to be given back")
    failed = device_of(cluster, node)["id"]
    described = log_files(node)[0].parent / "device.json"
    node.kill()
    described.write_text("{")
    node.start()
    wait_until(lambda: by_number(cluster, failed)["failure"] == "stopped", 60, "the failure to be noticed")

    def named_in_sync():
        return [group for group in cluster.json("group", "list") if failed in group["in_sync"]]

    def health():
        return cluster.json_of_unhealthy("status")["groups"]

    wait_until(lambda: health() == {"healthy": GROUPS // 2, "degraded": GROUPS // 2}, 60, "the groups to be judged")
    assert named_in_sync(), "nobody has used them"
    problems = cluster.json_of_unhealthy("status")["problems"]
    assert not any("do not serve" in problem for problem in problems), problems

    # What is said is true.
    with Client(gateway.uri()) as client:
        for chunk in range(GROUPS):
            assert client.read(chunk * CHUNK, BLOCK) == bytes([chunk]) * BLOCK
            client.write(chunk * CHUNK, bytes([chunk + 1]) * BLOCK)
    assert not named_in_sync()
    assert health() == {"healthy": GROUPS // 2, "degraded": GROUPS // 2}

    # So it is with a node that dies: of some groups it had the last copy.
    others = device_of(cluster, dead)["id"]
    alone = sum(group["in_sync"] == [others] for group in cluster.json("group", "list"))
    assert alone > 0
    dead.kill()
    wait_until(lambda: health().get("unavailable") == alone, 60, "those groups to be missed")
    problems = cluster.json_of_unhealthy("status")["problems"]
    assert any(f"{alone} of {GROUPS} placement groups do not serve" in problem for problem in problems), problems


@pytest.mark.parametrize("lost", ["map", "log", "device"])
def test_what_is_gone_for_good_is_not_waited_for(cluster, lost):
    """The node starts without the device, and the default patience of ten minutes does not hold the repair up."""
    gateway, node = cluster.nodes[0], cluster.nodes[3]
    ledger = Ledger(blocks=800, stride=128)
    writer = Writer(gateway.uri(), ledger, seed=2)
    writer.start()
    writer.go_on(500)
    log = log_files(node)[0]
    node.stop()
    if lost == "map":
        (log.parent / "map.redb").unlink()
    elif lost == "device":
        shutil.rmtree(log.parent)
    else:
        with open(log, "r+b") as file:
            file.truncate(1 << 20)
    failed = device_of(cluster, node)["id"]
    node.start()
    wait_until(lambda: by_number(cluster, failed)["failure"] == "lost", 60, "the loss to be noticed")
    wait_until(lambda: healthy(cluster), 180, "health without the device")
    all_copies_elsewhere(cluster, failed)
    writer.go_on()
    writer.finish()
    check_everywhere(cluster.nodes, ledger, "the device is lost")


def test_a_device_with_many_damaged_blocks_is_emptied(cluster):
    """It serves meanwhile; what is damaged is mended from the other copies."""
    node = cluster.nodes[3]
    generator = random.Random(3)
    contents = [generator.randbytes(BLOCK) for _ in range(RUNS * RUN_BLOCKS)]
    with Client(cluster.first.uri()) as client:
        for run in range(RUNS):
            blocks = contents[run * RUN_BLOCKS : (run + 1) * RUN_BLOCKS]
            client.write(run * CHUNK, b"".join(blocks))
    cluster.stop()
    log = log_files(node)[0]
    found = find_blocks(log, contents)
    assert len(found) > 256, "half of the groups have a copy there"
    for number, places in found.items():
        flip_bit(log, places[-1] + number % BLOCK, number % 8)
    cluster.start()
    assert run_cli("scrub", "vol1", "--wait", api=cluster.first.api).returncode == 1, "it names what it has mended"
    wait_until(lambda: device_of(cluster, node)["groups"] == 0, 180, "the device to be empty")
    device = device_of(cluster, node)
    assert device["status"] == "failing"
    cluster.wait_healthy()
    all_copies_elsewhere(cluster, device["id"])
    with Client(cluster.first.uri()) as client:
        for run in range(RUNS):
            data = client.read(run * CHUNK, RUN_BLOCKS * BLOCK)
            assert data == b"".join(contents[run * RUN_BLOCKS : (run + 1) * RUN_BLOCKS])
    # Somebody wants it used all the same.
    cluster.cli("device", "undrain", device_of(cluster, node)["id"])
    wait_until(lambda: device_of(cluster, node)["groups"] == GROUPS // 2, 180, "its share")
