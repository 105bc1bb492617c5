"""Nodes, devices and storage classes that leave for good, and names that are used again."""

import json
import shutil

import pytest

from tools.harness.cluster import CliError, run_cli
from tools.harness.nbd import Client
from tools.harness.process import wait_until

BLOCK = 4096


def names(cluster):
    return {node["name"] for node in cluster.json_of_unhealthy("node", "list")}


def fill(cluster):
    with Client(cluster.first.uri()) as client:
        for number in range(64):
            client.write(number * BLOCK, bytes([number]) * BLOCK)


def check(node):
    with Client(node.uri()) as client:
        for number in range(64):
            assert client.read(number * BLOCK, BLOCK) == bytes([number]) * BLOCK


def test_a_reinstalled_machine_comes_back_under_its_name(make_cluster):
    cluster = make_cluster(nodes=3, device_size="512MiB")
    cluster.create_volume(size="64MiB")
    fill(cluster)
    third = cluster.nodes[2]
    with pytest.raises(CliError, match="node n3 is not removed: it is running") as refused:
        cluster.cli("node", "remove", "n3", "--lost")
    assert "azekura node drain n3" in str(refused.value)
    third.kill()
    shutil.rmtree(third.data)
    # The name is taken, and the error tells the way out.
    third.start()
    wait_until(lambda: not third.alive, 30, "the end of a node without a name")
    assert "node 'n3' is another one already" in third.log()
    assert "azekura node replace n3" in third.log()
    wait_until(lambda: not alive(cluster, "n3"), 30, "its sign of life to end")
    with pytest.raises(CliError, match="placement groups need its copies") as refused:
        cluster.cli("node", "remove", "n3")
    assert "(parts of vol1)" in str(refused.value) and "--lost" in str(refused.value)
    cluster.cli("node", "replace", "n3")
    third.start()
    cluster.wait_healthy()
    check(third)
    wait_until(lambda: len(cluster.json("node", "list")) == 3, 60, "the former node's record to go")
    wait_until(lambda: device(cluster, "n3")["groups"] > 0, 60, "its share")
    cluster.wait_healthy()
    check(cluster.first)


def alive(cluster, name):
    return next(node["alive"] for node in cluster.json_of_unhealthy("node", "list") if node["name"] == name)


def device(cluster, node):
    return next(device for device in cluster.json("device", "list") if device["node_name"] == node)


def test_a_drained_node_is_removed_and_not_let_in_again(make_cluster):
    cluster = make_cluster(nodes=3, device_size="512MiB")
    cluster.create_volume(size="64MiB")
    fill(cluster)
    third = cluster.nodes.pop()
    cluster.cli("node", "drain", "n3", "--wait", 80)
    third.stop()
    wait_until(lambda: not alive(cluster, "n3"), 30, "its sign of life to end")
    removed = cluster.json("node", "remove", "n3")
    assert removed == {"removed": "n3", "groups_left": 0}
    assert names(cluster) == {"n1", "n2"}
    assert {device["node_name"] for device in cluster.json("device", "list")} == {"n1", "n2"}
    cluster.wait_healthy()
    third.start()
    wait_until(lambda: not third.alive, 30, "the end of a node that was removed")
    assert "was removed from the cluster" in third.log() and "empty data folder" in third.log()
    check(cluster.first)


def test_dead_nodes_are_not_given_up_one_after_the_other(make_cluster):
    cluster = make_cluster(nodes=3, config="etcd", device_size="512MiB")
    cluster.create_volume(size="64MiB")
    fill(cluster)
    dead = cluster.nodes[1:]
    for node in dead:
        node.kill()
    wait_until(lambda: not any(alive(cluster, node.name) for node in dead), 60, "their signs of life to end")
    # Some groups have their only copies on these two.
    for node in dead:
        with pytest.raises(CliError, match="the last copy, or one of too few") as refused:
            cluster.cli("node", "remove", node.name, "--lost")
        assert "azekura class delete default" in str(refused.value), refused.value
    for node in dead:
        node.start()
    cluster.wait_healthy()
    check(cluster.first)
    # The way out that the refusal names: the data is given up with its volume.
    for node in dead:
        node.kill()
    wait_until(lambda: not any(alive(cluster, node.name) for node in dead), 60, "their signs of life to end")
    cluster.delete_volume("vol1")
    for node in dead:
        cluster.cli("node", "remove", node.name, "--lost")
    done = lambda: run_cli("class", "delete", "default", api=cluster.first.api)  # noqa: E731
    wait_until(lambda: done().returncode == 0, 60, "the class to go")
    wait_until(lambda: names(cluster) == {"n1"}, 60, "the nodes' records to go")
    cluster.nodes = [cluster.first]
    cluster.cli("class", "create", "solo", "--copies", 1)
    cluster.cli("volume", "create", "vol1", "64MiB", "--class", "solo")
    cluster.wait_healthy()
    fill(cluster)


def test_no_device_takes_the_place_of_one_that_is_away(make_cluster):
    """A file system that was not mounted before the start."""
    cluster = make_cluster(nodes=3, device_size="512MiB")
    cluster.create_volume(size="64MiB")
    fill(cluster)
    third = cluster.nodes[2]
    here, away = third.data / "device-0", cluster.folder / "away"
    third.stop()
    here.rename(away)
    third.start()
    wait_until(lambda: device(cluster, "n3")["failure"] == "lost", 60, "it to be missed")
    assert not here.exists() and "is a file system not mounted there?" in third.log()
    assert f"mkdir {here}" in third.log()
    third.stop()
    away.rename(here)
    third.start()
    wait_until(lambda: device(cluster, "n3")["failure"] is None, 60, "it to be back")
    cluster.wait_healthy()
    check(third)
    # Gone for good: another one has its name, and the name means that one, or the lost one, as it must.
    third.stop()
    shutil.rmtree(here)
    here.mkdir()
    third.start()
    wait_until(lambda: len(cluster.json("device", "list")) == 4, 60, "the new device")
    cluster.cli("device", "drain", "n3/device-0")
    cluster.cli("device", "undrain", "n3/device-0")
    [lost] = [device["id"] for device in cluster.json("device", "list") if device["failure"] == "lost"]
    cluster.cli("device", "remove", "n3/device-0", "--lost")
    ids = lambda: [device["id"] for device in cluster.json("device", "list")]  # noqa: E731
    wait_until(lambda: len(ids()) == 3, 60, "the lost one's record to go")
    assert lost not in ids()
    cluster.wait_healthy()
    check(third)


def test_files_that_are_deleted_are_missed_while_they_are_open(make_cluster):
    cluster = make_cluster(nodes=3, device_size="512MiB")
    cluster.create_volume(size="64MiB")
    fill(cluster)
    folder = cluster.nodes[2].data / "device-0"
    shutil.rmtree(folder)
    told = lambda: " ".join(cluster.json_of_unhealthy("status")["problems"])  # noqa: E731
    wait_until(lambda: f"{folder}/log was deleted" in told(), 60, "it to be missed")
    number = device(cluster, "n3")["id"]
    assert f"azekura device drain {number}" in told()
    # What it says can be done, and nothing is lost.
    cluster.cli("device", "drain", number, "--wait", 80)
    cluster.cli("device", "remove", number)
    cluster.nodes.pop().stop()
    check(cluster.first)


def test_classes_are_deleted_when_nobody_uses_them(make_cluster):
    cluster = make_cluster(nodes=2, device_size="512MiB")
    cluster.cli("class", "create", "solo", "--copies", "1")
    cluster.cli("volume", "create", "s1", "64MiB", "--class", "solo")
    cluster.wait_healthy()
    with pytest.raises(CliError, match="storage class 'solo' is not deleted: volume s1 uses it"):
        cluster.cli("class", "delete", "solo")
    cluster.delete_volume("s1")

    def deleted():
        done = run_cli("class", "delete", "solo", "--json", api=cluster.first.api)
        if done.returncode != 0:
            assert "still being given back" in json.loads(done.stderr)["error"], done.stderr
        return done.returncode == 0

    wait_until(deleted, 60, "the class to go")
    assert cluster.json("class", "list") == [] and cluster.json("group", "list") == []
    # The name can be used again, and the default class is the one of two copies.
    cluster.cli("class", "create", "solo", "--copies", "1")
    cluster.cli("volume", "create", "s1", "64MiB", "--class", "solo")
    for name, more in (("a", []), ("b", ["--copies", 2])):
        cluster.cli("volume", "create", name, "64MiB", *more)
        assert cluster.json("volume", "show", name)["class"] == "default"
    cluster.wait_healthy()


def test_a_start_that_fails_leaves_no_node(make_cluster):
    cluster = make_cluster(nodes=2, device_size="512MiB")
    spare = type(cluster.first)(cluster, 3)
    cluster.device_size = "1MiB"
    spare.start()
    wait_until(lambda: not spare.alive, 30, "the end of a node with too small a device")
    assert "too small" in spare.log()
    assert names(cluster) == {"n1", "n2"}


def test_names_that_several_devices_have(make_cluster):
    cluster = make_cluster(nodes=2, device_size="512MiB")
    with pytest.raises(CliError, match=r"2 devices have the name 'device-0': n1/device-0, n2/device-0"):
        cluster.cli("device", "remove", "device-0")
    cluster.create_volume(size="64MiB")
    with pytest.raises(CliError, match=r"device \d \(device-0 of node n2\) is not removed: .* groups need its copies"):
        cluster.cli("device", "remove", "n2/device-0")


def test_while_the_configuration_is_away_nodes_tell_what_they_knew(make_cluster):
    cluster = make_cluster(nodes=2, config="etcd", device_size="512MiB")
    cluster.create_volume(size="64MiB", shared=True)
    with Client(cluster.first.uri()) as client:
        client.write(0, b"x" * BLOCK)
        cluster.cli("snapshot", "create", "vol1@before")
        cluster.etcd.kill()
        wait_until(lambda: "stale" in cluster.json_of_unhealthy("status"), 30, "the loss to be noticed")
        status = cluster.json_of_unhealthy("status")
        assert "this is what node n1 knew then" in status["problems"][0]
        for command, known in [
            (["volume", "list"], "vol1"),
            (["volume", "show", "vol1"], "vol1"),
            (["snapshot", "list"], "before"),
            (["snapshot", "list", "vol1"], "before"),
            (["class", "list"], "default"),
            (["class", "show", "default"], "default"),
            (["space"], "vol1"),
        ]:
            listed = run_cli(*command, api=cluster.first.api)
            assert listed.returncode == 0 and known in listed.stdout, (command, listed)
            assert "the configuration has not answered for" in listed.stderr, command
        # It is attached here already: that needs no change.
        with Client(cluster.first.uri()) as second:
            assert second.read(0, BLOCK) == b"x" * BLOCK
        client.write(BLOCK, b"y" * BLOCK)
    cluster.start_etcd()
    cluster.wait_healthy()
