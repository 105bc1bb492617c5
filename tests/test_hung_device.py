"""A device hangs: it neither does what it is asked for nor refuses it. Clients go on with the other copies.

The device's log is a FUSE file whose server is stopped, so the node's operations wait in the kernel without an end. The
configuration is in etcd: the embedded server is not to be in the way.
"""

import os
import time
from pathlib import Path

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.device import is_initialised, log_files
from tools.harness.hanging import HangingFile
from tools.harness.process import wait_until

pytestmark = pytest.mark.alone

# What is promised is about 3 s (docs/decisions/0021); machines that run tests may be slow.
PAUSE_MAX_S = 8


@pytest.fixture
def cluster(make_cluster):
    started = make_cluster(config="etcd", device_size="512MiB")
    started.create_volume("vol1", size="256MiB")
    started.create_volume("vol2", size="256MiB")
    return started


@pytest.fixture
def hanging(cluster):
    """The last node's device, behind a server that can be stopped."""
    node = cluster.nodes[2]
    # FUSE lets one writer of a file in at a time. Others wait for it in the kernel, also where io_uring asks it not to
    # block; block devices, ext4 and xfs do not. So nobody but the data plane may be writing when the device hangs.
    wait_until(lambda: is_initialised(node), 120, "the device's first writing")
    node.stop()
    device = HangingFile(log_files(node)[0], Path(node.data).parent / "hanging")
    node.start()
    cluster.wait_healthy()
    yield device
    device.answer()
    node.kill()
    device.close()


def device_of(cluster, node):
    return next(device for device in cluster.json("device", "list") if device["node_name"] == node.name)


@pytest.mark.root
def test_clients_go_on_while_a_device_hangs(cluster, hanging):
    """For some seconds, and for so long that the device is out of service: after both all is whole again by itself."""
    elsewhere, node = cluster.nodes[0], cluster.nodes[2]
    ledgers = [Ledger(blocks=1000, stride=64), Ledger(blocks=1000)]
    # One client's gateway is on the very node: that goes on, too.
    writers = [
        Writer(elsewhere.uri("vol1"), ledgers[0], seed=1),
        Writer(node.uri("vol2"), ledgers[1], seed=2),
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.go_on(500)

    def out_of_service():
        device = device_of(cluster, node)
        return device["failure"] == "stopped" and "has not answered for 1" in device["problem"]

    def hang_for(seconds, until=lambda: None):
        for writer in writers:
            writer.longest_s = 0.0
        before = [writer.acks for writer in writers]
        hanging.hang()
        time.sleep(seconds)
        until()
        done = [writer.acks - acks for writer, acks in zip(writers, before)]
        hanging.answer()
        for writer in writers:
            writer.go_on(300)
        pauses = [round(writer.longest_s, 2) for writer in writers]
        print(f"device silent for {seconds} s: longest writes {pauses} s, {done} writes meanwhile")
        assert all(count > 100 for count in done), done
        assert all(pause < PAUSE_MAX_S for pause in pauses), pauses

    hang_for(5)
    cluster.wait_healthy()
    assert device_of(cluster, node)["failure"] is None
    assert "nobody waits for its copies" in node.log() and "answers again" in node.log()

    # For longer it is out of service. When it answers it is back, with nobody's help.
    hang_for(30, lambda: wait_until(out_of_service, 60, "the device to be out of service"))
    cluster.wait_healthy()
    assert device_of(cluster, node)["failure"] is None
    for writer in writers:
        writer.finish()
    for reader in cluster.nodes:
        for volume, ledger in zip(["vol1", "vol2"], ledgers):
            faults = ledger.check(reader.uri(volume))
            assert not faults, f"{volume} read through {reader.name}: {faults[:5]}"


@pytest.mark.root
def test_a_device_may_be_silent_for_as_long_as_its_node_was_told(cluster, hanging):
    """Longer than the ten seconds of a node that was told nothing."""
    node, ledger = cluster.nodes[2], Ledger(blocks=500, stride=128)
    node.options = ["--device-timeout", "2m"]
    node.stop()
    node.start()
    cluster.wait_healthy()
    writer = Writer(cluster.nodes[0].uri("vol1"), ledger, seed=7)
    writer.start()
    writer.go_on(300)
    hanging.hang()
    time.sleep(16)
    hanging.answer()
    writer.go_on(300)
    cluster.wait_healthy()
    assert "answers again; it was silent for 1" in node.log()
    assert device_of(cluster, node)["failure"] is None
    writer.finish()
    assert not ledger.check(cluster.first.uri("vol1"))


@pytest.mark.root
def test_a_node_starts_beside_a_device_that_hangs(cluster, hanging):
    """The node serves its clients from other copies, says what it waits for, and takes the device in by itself."""
    node, ledger = cluster.nodes[2], Ledger(blocks=500, stride=128)
    writer = Writer(cluster.nodes[0].uri("vol1"), ledger, seed=3)
    writer.start()
    writer.go_on(300)
    node.stop()
    hanging.hang()
    began = time.monotonic()
    node.start()
    wait_until(lambda: node.log().count("is up:") == 3, 60, "the node to start")
    print(f"the node is up after {time.monotonic() - began:.1f} s")
    second = Writer(node.uri("vol2"), Ledger(blocks=500, stride=128), seed=4)
    second.start()
    second.go_on(300)
    wait_until(lambda: device_of(cluster, node)["failure"] == "stopped", 60, "the device to be out of service")
    assert "opening" in device_of(cluster, node)["problem"], device_of(cluster, node)
    writer.go_on(300)
    hanging.answer()
    cluster.wait_healthy()
    assert device_of(cluster, node)["failure"] is None
    for each in (writer, second):
        each.finish()
    for reader in cluster.nodes:
        assert not ledger.check(reader.uri("vol1")), f"read through {reader.name}"


def test_a_node_starts_beside_a_device_that_takes_long_to_open(cluster):
    """A file in the device's folder that nobody can read yet stands for a map that has to be read whole."""
    node, ledger = cluster.nodes[2], Ledger(blocks=500, stride=128)
    writer = Writer(cluster.nodes[0].uri("vol1"), ledger, seed=5)
    writer.start()
    writer.go_on(300)
    node.stop()
    layers = log_files(node)[0].parent / "layers.json"
    content = layers.read_bytes() if layers.exists() else b"[]"
    layers.unlink(missing_ok=True)
    os.mkfifo(layers)
    node.start()
    wait_until(lambda: node.log().count("is up:") == 2, 60, "the node to start")
    second = Writer(node.uri("vol2"), Ledger(blocks=500, stride=128), seed=6)
    second.start()
    second.go_on(300)
    wait_until(lambda: device_of(cluster, node)["failure"] == "stopped", 60, "the device to be out of service")
    assert "has been opening for" in device_of(cluster, node)["problem"], device_of(cluster, node)
    assert "the node goes on without the device" in node.log()
    writer.go_on(300)
    # Whoever opens this for writing waits for a reader, and the node is one.
    layers.write_bytes(content)
    cluster.wait_healthy()
    assert device_of(cluster, node)["failure"] is None
    for each in (writer, second):
        each.finish()
    for reader in cluster.nodes:
        assert not ledger.check(reader.uri("vol1")), f"read through {reader.name}"
