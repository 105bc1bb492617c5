"""Small files that say who a node or a device is come back older than they were, or damaged: nothing is lost by it."""

import json
import random

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.cluster import run_cli
from tools.harness.device import log_files
from tools.harness.nbd import Client
from tools.harness.process import wait_until

from .test_failed_device import check_everywhere, device_of

# Two copies of it on four devices are ten segments on each; the ledger has what is before it.
FILL_MIB = 640
SKIPPED_MIB = 64


@pytest.fixture
def cluster(make_cluster):
    """Devices with more segments than are filled."""
    started = make_cluster(nodes=4, config="etcd", device_size="1GiB")
    started.create_volume()
    return started


def change(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def fill(cluster):
    """So much that each of the four devices uses more segments than a new one begins with."""
    generator = random.Random(1)
    with Client(cluster.first.uri()) as client:
        for place in range(FILL_MIB):
            client.write((SKIPPED_MIB + place) << 20, generator.randbytes(1 << 20))


def written(cluster, blocks=1500):
    ledger = Ledger(blocks=blocks)
    writer = Writer(cluster.first.uri(), ledger, seed=5)
    writer.start()
    writer.go_on(2 * blocks)
    return ledger, writer


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"cluster": None, "id": None, "segments_ready": 0}, id="before-it-joined", marks=pytest.mark.long),
        pytest.param({"segments_ready": 8}, id="before-its-log-was-initialised"),
    ],
)
def test_an_older_device_json_costs_no_data(cluster, fields):
    """The log says whose it is, and which of its segments are in use: none is formatted, or filled with zeros."""
    node = cluster.nodes[3]
    fill(cluster)
    ledger, writer = written(cluster)
    before = device_of(cluster, node)
    node.stop()
    folder = log_files(node)[0].parent
    change(folder / "device.json", **fields)
    node.start()
    cluster.wait_healthy()
    writer.go_on()
    writer.finish()
    after = device_of(cluster, node)
    assert (after["id"], after["failure"]) == (before["id"], None)
    assert after["groups"] == before["groups"]
    check_everywhere(cluster.nodes, ledger, "device.json was put back")
    assert cluster.json("scrub", "vol1", "--wait")["findings"] == 0
    node.stop()
    check = run_cli("store", "check", "--deep", str(folder))
    assert check.returncode == 0, check.stdout + check.stderr


def test_a_log_of_another_device_is_not_written_to(cluster):
    """Two nodes' device.json are mixed up: neither device is touched, and all is well when both are put right."""
    ledger, writer = written(cluster)
    nodes = cluster.nodes[2:]
    cluster.cli("cluster", "set", "rehome-after", "never")
    writer.finish()
    files = [log_files(node)[0].parent / "device.json" for node in nodes]
    texts = [file.read_text() for file in files]
    numbers = [device_of(cluster, node)["id"] for node in nodes]
    node, file = nodes[0], files[0]
    node.stop()
    fresh = {"cluster": None, "id": None, "instance": 7}
    change(file, **fresh)
    node.start()
    wait_until(lambda: device_of(cluster, node)["failure"] == "stopped", 60, "the device to be refused")
    assert "put back the device.json" in node.log()
    node.stop()
    file.write_text(texts[0])
    node.start()
    cluster.wait_healthy()
    assert [device_of(cluster, node)["id"] for node in nodes] == numbers
    check_everywhere(cluster.nodes, ledger, "device.json is the right one again")


def test_a_damaged_device_json_stops_its_device_only(cluster):
    node = cluster.nodes[3]
    cluster.cli("cluster", "set", "rehome-after", "never")
    ledger, writer = written(cluster)
    number = device_of(cluster, node)["id"]
    file = log_files(node)[0].parent / "device.json"
    text = file.read_text()
    node.stop()
    file.write_text(text[: len(text) // 2])
    node.start()
    wait_until(lambda: device_of(cluster, node)["failure"] == "stopped", 60, "the device to be out of service")
    writer.go_on()
    node.stop()
    file.write_text(text)
    node.start()
    cluster.wait_healthy()
    writer.finish()
    after = device_of(cluster, node)
    assert (after["id"], after["failure"]) == (number, None)
    check_everywhere(cluster.nodes, ledger, "device.json is whole again")


def test_a_device_that_was_not_finished_is_made(make_cluster):
    """The very first start was killed after it had made the folder, or the log."""
    cluster = make_cluster(nodes=2, device_size="512MiB", start=False)
    for node, size in zip(cluster.nodes, (None, 512 << 20), strict=True):
        folder = node.data / "device-0"
        folder.mkdir(parents=True)
        if size:
            with open(folder / "log", "wb") as file:
                file.truncate(size)
    cluster.start()
    cluster.create_volume(size="64MiB")
    assert [device["status"] for device in cluster.json("device", "list")] == ["open", "open"]


def test_an_older_node_json_does_not_make_a_process_look_like_an_earlier_one(cluster):
    node = cluster.nodes[2]
    ledger, writer = written(cluster)
    file = node.data / "node.json"
    text = file.read_text()
    for _ in range(3):
        node.stop()
        node.start()
        cluster.wait_healthy()
    starts = json.loads(file.read_text())["incarnation"]
    node.kill()
    file.write_text(text)
    node.start()
    cluster.wait_healthy()
    assert json.loads(file.read_text())["incarnation"] > starts
    writer.go_on()
    writer.finish()
    check_everywhere(cluster.nodes, ledger, "node.json was put back")
