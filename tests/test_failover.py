"""Nodes that die, stand still or stay away while clients write: service goes on, and nothing acknowledged is lost.

The configuration is in etcd here: the embedded server goes down with its node, and nobody could take over.
"""

import signal
import time

import pytest

from tools.harness.acked_writer import Ledger, Writer, outlive


@pytest.fixture
def cluster(make_cluster):
    started = make_cluster(config="etcd")
    started.create_volume()
    return started


def check_everywhere(cluster, ledger, when):
    for reader in cluster.nodes:
        faults = ledger.check(reader.uri())
        assert not faults, f"{when}, read through {reader.name}: {faults[:5]}"


@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.long)])
def test_writes_go_on_without_a_dead_node_and_it_comes_back(cluster, number):
    """Primaries on the dead node are replaced, its other copies left behind; later it gets what it missed."""
    gateway, dead = cluster.nodes[0], cluster.nodes[number - 1]
    ledger = Ledger(blocks=1500, stride=128)
    writer = Writer(gateway.uri(), ledger, seed=number)
    writer.start()
    writer.go_on()
    dead.kill()
    writer.go_on(2000)
    dead.start()
    writer.go_on()
    cluster.wait_healthy()
    writer.go_on()
    writer.finish()
    check_everywhere(cluster, ledger, f"{dead.name} died and came back")


def test_each_copy_alone_has_everything(cluster):
    """After a death and a return, the copies that were away answer for the others."""
    ledger = Ledger(blocks=1000, stride=128)
    for dead in cluster.nodes:
        outlive(cluster, [dead], ledger, seed=dead.number)
    check_everywhere(cluster, ledger, "each node has been dead once")


def test_a_client_finds_its_volume_on_another_node(cluster):
    """A gateway's node dies: the client connects to any other node, and everything acknowledged is there."""
    ledger = Ledger(blocks=1000, stride=128)
    writer = Writer(cluster.nodes[1].uri(), ledger, seed=5)
    writer.start()
    writer.go_on()
    cluster.nodes[1].kill()
    writer.join_cut_off()
    writer = Writer(cluster.nodes[2].uri(), ledger, seed=6)
    writer.start()
    writer.go_on()
    writer.finish()
    assert ledger.check(cluster.nodes[0].uri()) == []
    cluster.nodes[1].start()
    cluster.wait_healthy()
    check_everywhere(cluster, ledger, "the gateway's node came back")


@pytest.mark.parametrize("seconds", [1, 4])
def test_a_node_that_stands_still_does_no_harm(cluster, seconds):
    """SIGSTOP is the purest split brain: the process goes on later as if nothing had happened."""
    ledger = Ledger(blocks=1000, stride=128)
    writer = Writer(cluster.nodes[0].uri(), ledger, seed=seconds)
    writer.start()
    writer.go_on()
    for still in cluster.nodes[1:]:
        still.process.pause()
        try:
            time.sleep(seconds)
        finally:
            still.process.signal(signal.SIGCONT)
        writer.go_on(1000)
        cluster.wait_healthy()
    writer.finish()
    check_everywhere(cluster, ledger, "nodes stood still")


def test_etcd_away_stops_no_writes(cluster):
    """Losing the configuration server stops changes of the configuration, not I/O."""
    ledger = Ledger(blocks=500, stride=128)
    writer = Writer(cluster.nodes[0].uri(), ledger, seed=8)
    writer.start()
    writer.go_on()
    cluster.etcd.kill()
    before = time.monotonic()
    while time.monotonic() < before + 6:
        writer.go_on(100)
    cluster.start_etcd()
    cluster.wait_healthy()
    writer.go_on()
    cluster.nodes[2].kill()
    writer.go_on(1000)
    writer.finish()
    cluster.nodes[2].start()
    cluster.wait_healthy()
    check_everywhere(cluster, ledger, "etcd was away")
