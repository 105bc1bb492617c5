"""Ack rules: writes that need not wait for every copy are never lost; what can't be met is refused."""

import pytest

from tools.harness.acked_writer import Ledger, outlive
from tools.harness.cluster import CliError


@pytest.fixture
def cluster(make_cluster):
    return make_cluster(config="etcd")


def test_writes_of_a_majority_survive_each_node(cluster):
    cluster.cli("volume", "create", "vol1", "1GiB", "--ack", "majority")
    volume = cluster.json("volume", "show", "vol1")
    assert (volume["copies"], volume["ack_rule"], volume["class"]) == (3, "majority", "replicated-3-majority")
    cluster.wait_healthy()
    ledger = Ledger(blocks=1000, stride=128)
    for dead in cluster.nodes:
        outlive(cluster, [dead], ledger, seed=dead.number)
    for reader in cluster.nodes:
        assert ledger.check(reader.uri()) == []


def test_writes_of_each_site_survive_each_site(make_cluster):
    cluster = make_cluster(nodes=4, config="etcd", sites=["east", "east", "west", "west"])
    cluster.cli("volume", "create", "vol1", "1GiB", "--copies", "3", "--ack", "each-site")
    volume = cluster.json("volume", "show", "vol1")
    assert (volume["copies"], volume["ack_rule"]) == (3, "each_site")
    cluster.wait_healthy()
    ledger = Ledger(blocks=1000, stride=128)
    east, west = cluster.nodes[:2], cluster.nodes[2:]
    for seed, dead in enumerate([west[:1], east, west], start=1):
        outlive(cluster, dead, ledger, seed)
    for reader in cluster.nodes:
        assert ledger.check(reader.uri()) == []


def test_rules_that_cannot_be_met_are_refused(cluster):
    with pytest.raises(CliError, match=r"a majority of 2 copies is all of them"):
        cluster.cli("volume", "create", "v", "1GiB", "--copies", "2", "--ack", "majority")
    with pytest.raises(CliError, match=r"all devices are in one"):
        cluster.cli("volume", "create", "v", "1GiB", "--ack", "each-site")
    with pytest.raises(CliError, match=r"copies"):
        cluster.cli("class", "create", "c", "--copies", "2", "--ack", "majority")
    assert cluster.json("class", "list") == []
