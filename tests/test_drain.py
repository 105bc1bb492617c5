"""Nodes and devices that are emptied while clients write, and what is refused."""

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.cluster import CliError
from tools.harness.process import wait_until


@pytest.fixture
def cluster(four_nodes):
    return four_nodes


def device_of(cluster, node):
    return next(device for device in cluster.json("device", "list") if device["node_name"] == node.name)


def test_a_node_is_emptied_while_a_client_writes(cluster):
    """No write is lost or fails, and nothing is left on it; it can be taken away then."""
    gateway, drained = cluster.nodes[0], cluster.nodes[2]
    assert device_of(cluster, drained)["groups"] > 0
    ledger = Ledger(blocks=1500, stride=128)
    writer = Writer(gateway.uri(), ledger, seed=3)
    writer.start()
    writer.go_on(1000)
    shown = cluster.cli("node", "drain", drained.name, "--wait", 80)
    assert "drained" in shown, shown
    device = device_of(cluster, drained)
    assert (device["groups"], device["leaving"], device["primaries"]) == (0, 0, 0), device
    wait_until(lambda: device_of(cluster, drained)["used_bytes"] == 0, 60, "its space to come back")
    writer.go_on()
    cluster.wait_healthy()
    drained.stop()
    writer.go_on(500)
    # On a busy machine a copy may be left behind for a moment; nothing is missing for good.
    cluster.cli("status", "--wait", 30)
    assert cluster.json("status")["healthy"]
    writer.finish()
    for reader in cluster.nodes:
        if reader is not drained:
            assert ledger.check(reader.uri()) == []
    # Back in service, it gets its share again.
    drained.start()
    cluster.wait_healthy()
    assert device_of(cluster, drained)["groups"] == 0
    cluster.cli("node", "undrain", drained.name)
    wait_until(lambda: device_of(cluster, drained)["groups"] == 32, 120, "its share")
    cluster.wait_healthy()
    for reader in cluster.nodes:
        assert ledger.check(reader.uri()) == []


def test_what_can_not_be_drained_is_refused(cluster):
    """Too few failure domains, and things that are not there, with a word about what to do."""
    cluster.cli("volume", "create", "wide", "256MiB", "--copies", 4)
    with pytest.raises(CliError, match=r"can't be drained: storage class 'replicated-4' keeps 4 copies") as refused:
        cluster.cli("node", "drain", "n2")
    assert "hint:" in str(refused.value)
    assert device_of(cluster, cluster.nodes[1])["state"] == "up"
    with pytest.raises(CliError, match="there is no node 'n9'"):
        cluster.cli("node", "drain", "n9")
    for name in ["99", "n1/nothing", "nothing"]:
        with pytest.raises(CliError, match="there is no device"):
            cluster.cli("device", "drain", name)
    with pytest.raises(CliError, match="groups can move at once"):
        cluster.cli("cluster", "set", "moves-at-once", "0")


def test_a_drain_is_called_off(cluster):
    device = device_of(cluster, cluster.nodes[3])
    cluster.cli("cluster", "set", "moves-at-once", "1")
    cluster.cli("device", "drain", f"n4/{device['name']}")
    assert device_of(cluster, cluster.nodes[3])["state"] == "draining"
    assert "draining" in cluster.cli("device", "list")
    cluster.cli("device", "undrain", device["id"])
    cluster.cli("cluster", "set", "moves-at-once", "8")
    wait_until(lambda: device_of(cluster, cluster.nodes[3])["groups"] == device["groups"], 60, "its groups")
    cluster.wait_healthy()
