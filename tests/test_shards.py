"""Nodes whose data plane is cut into shards: each has devices, groups and clients of its own, and what they have
together is the node's.

Node 1 has four shards, node 2 two and node 3 one, so each kind speaks with each other kind.
"""

import json
import os
import re
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.cluster import run_cli
from tools.harness.nbd import Client, NbdError
from tools.harness.process import remote_ports, wait_until

BLOCK = 4096
DEVICES = 4
SHARDS = [4, 2, 1]


@pytest.fixture
def cluster(make_cluster):
    cluster = make_cluster(start=False, device_size="512MiB", node_options=["--devices", DEVICES])
    for node, shards in zip(cluster.nodes, SHARDS, strict=True):
        node.options = ["--shards", shards]
    cluster.start()
    return cluster


def threads_of(node):
    """The names of the data plane's threads."""
    names = [path.read_text().strip() for path in Path(f"/proc/{node.pid}/task").glob("*/comm")]
    return sorted(name for name in names if name == "data" or name.startswith("data-"))


def has_threads(node, names):
    """A thread has the name of the one that started it until it has its own."""
    wait_until(lambda: threads_of(node) == names, 10, f"the threads {names}")


def statistics(node):
    with urllib.request.urlopen(f"{node.api}/v1/node/stats", timeout=10) as answer:
        return json.loads(answer.read())


def attached_to(cluster, volume):
    return [entry["node_name"] for entry in cluster.json("volume", "show", volume)["attachments"]]


def check_everywhere(cluster, volume, ledgers, when):
    for reader in cluster.nodes:
        for ledger in ledgers:
            faults = ledger.check(reader.uri(volume))
            assert not faults, f"{when}, read through {reader.name}: {faults[:5]}"


def restart(node, shards):
    node.options = ["--shards", shards]
    node.start()


@pytest.mark.long
def test_nodes_die_and_come_back_with_another_number_of_shards(cluster):
    """Writers on all shards of a node lose nothing, whoever of the others comes back as what."""
    volume = cluster.create_volume(size="512MiB", copies=2)
    gateway, two, three = cluster.nodes
    ledgers = [Ledger(blocks=400, first_block=number * 16, stride=128) for number in range(6)]
    # Clients of the unix socket are dealt out in turn; those of the network by the kernel.
    uris = [gateway.uri(volume, tcp=number >= 4) for number in range(6)]
    writers = [Writer(uri, ledger, depth=4, seed=number) for number, (uri, ledger) in enumerate(zip(uris, ledgers))]
    for writer in writers:
        writer.start()

    def go_on(count):
        for writer in writers:
            writer.go_on(count)

    go_on(100)
    two.kill()
    go_on(200)
    restart(two, 4)
    go_on(100)
    cluster.wait_healthy()
    assert len(threads_of(two)) == 4
    three.kill()
    go_on(200)
    restart(three, 2)
    cluster.wait_healthy()
    two.stop()
    go_on(100)
    restart(two, 1)
    go_on(100)
    cluster.wait_healthy()
    assert len(threads_of(two)) == 1
    for writer in writers:
        writer.finish()
    check_everywhere(cluster, volume, ledgers, "two nodes have come back as others")
    # And the gateway itself.
    gateway.kill()
    restart(gateway, 2)
    cluster.wait_healthy()
    check_everywhere(cluster, volume, ledgers, "the gateway has come back as another")


def test_everything_dies_and_comes_back_with_other_shards(cluster):
    volume = cluster.create_volume(size="512MiB", copies=2)
    ledger = Ledger(blocks=800, stride=128)
    writer = Writer(cluster.first.uri(volume), ledger, seed=1)
    writer.start()
    writer.go_on(1000)
    cluster.kill_all()
    writer.join_cut_off()
    for node, shards in zip(cluster.nodes, [1, 4, 3], strict=True):
        node.options = ["--shards", shards]
    cluster.start()
    check_everywhere(cluster, volume, [ledger], "all nodes died at once")
    assert [len(threads_of(node)) for node in cluster.nodes] == [1, 4, 3]


def test_the_statistics_of_shards_add_up(cluster):
    volume = cluster.create_volume(size="64MiB", copies=2)
    node = cluster.first
    has_threads(node, ["data", "data-1", "data-2", "data-3"])
    # Nodes are listed in the order in which they were registered.
    listed = {entry["name"]: entry["shards"] for entry in cluster.json("node", "list")}
    assert [listed[node.name] for node in cluster.nodes] == SHARDS
    clients = [Client(node.uri(volume, tcp=number % 2 == 1)) for number in range(16)]
    for number, client in enumerate(clients):
        for turn in range(5):
            client.write((number * 5 + turn) * BLOCK, bytes([number]) * BLOCK)
        assert client.read(number * 5 * BLOCK, BLOCK) == bytes([number]) * BLOCK
    seen = statistics(node)
    of_volume = seen["volumes"][volume]
    assert of_volume["writes"]["count"] == 80 and of_volume["writes"]["bytes"] == 80 * BLOCK
    assert of_volume["reads"]["count"] == 16
    assert of_volume["connections"] == 16
    assert len(seen["devices"]) == DEVICES
    ids = [device["id"] for device in seen["devices"]]
    assert ids == sorted(ids) and all(device["state"] == "open" for device in seen["devices"])
    groups = cluster.json("group", "list")
    own = {device["id"] for device in cluster.json("device", "list") if device["node_name"] == node.name}
    assert own == set(ids)
    assert len(seen["groups"]) == sum(len(own & set(group["in_sync"])) for group in groups)
    with urllib.request.urlopen(f"{node.api}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert f'volume="{volume}"' in metrics
    for client in clients:
        client.close()


def links_between(nodes):
    """How many connections each node has dialled to each other one; none to itself."""
    dialled = {node: remote_ports(node.pid) for node in nodes}
    to_itself = [node.name for node in nodes if dialled[node][node.listen_port]]
    assert not to_itself, f"{to_itself} have dialled themselves"
    return {
        (one.name, other.name): dialled[one][other.listen_port] for one in nodes for other in nodes if one is not other
    }


def check_links(cluster, volume_used_on=None):
    """Shards of different nodes that share a group have dialled each other. The others have not, but on a node whose
    clients use a volume."""
    shards = {node.name: len(threads_of(node)) for node in cluster.nodes}
    place = {}
    for device in cluster.json("device", "list"):
        number = int(re.search(r"(\d+)$", device["name"])[1])
        place[device["id"]] = (device["node_name"], number % shards[device["node_name"]])
    pairs = set()
    for group in cluster.json("group", "list"):
        copies = {place[device] for device in group["in_sync"]}
        pairs |= {(one, other) for one in copies for other in copies if one[0] != other[0]}
    shared = Counter((one[0], other[0]) for one, other in pairs)

    def is_right(one, other, count):
        used = one == volume_used_on
        return shared[one, other] <= count <= (shards[one] * shards[other] if used else shared[one, other])

    def all_stand():
        return all(is_right(*pair, count) for pair, count in links_between(cluster.nodes).items())

    wait_until(all_stand, 90, f"connections between shards that share groups: {shared}")


def test_nodes_without_groups_have_no_connections(cluster):
    assert cluster.json("group", "list") == []
    time.sleep(2)
    assert set(links_between(cluster.nodes).values()) == {0}
    cluster.create_volume(size="64MiB", copies=2)
    check_links(cluster)


def test_shards_of_a_node_have_no_tcp_connection_with_each_other(cluster):
    volume = cluster.create_volume(size="64MiB", copies=2)
    check_links(cluster)
    ledger = Ledger(blocks=400, stride=32)
    writer = Writer(cluster.first.uri(volume), ledger, seed=3)
    writer.start()
    writer.go_on(500)
    cluster.nodes[1].kill()
    writer.go_on(500)
    restart(cluster.nodes[1], 3)
    cluster.wait_healthy()
    writer.finish()
    check_links(cluster, volume_used_on=cluster.first.name)
    check_everywhere(cluster, volume, [ledger], "a node has come back with three shards")


def test_a_volume_whose_copies_are_on_two_shards_of_one_node(make_cluster):
    """What goes from copy to copy stays in the process, and is there when that dies."""
    cluster = make_cluster(nodes=1, start=False, device_size="512MiB", node_options=["--devices", 2])
    node = cluster.first
    node.options = ["--shards", "2"]
    cluster.start()
    cluster.cli("class", "create", "both", "--copies", 2, "--failure-domain", "device")
    cluster.cli("volume", "create", "vol1", "256MiB", "--class", "both")
    cluster.wait_healthy()
    ledgers = [Ledger(blocks=400, first_block=number * 16, stride=128) for number in range(2)]
    # One on each shard.
    writers = [Writer(node.uri(), ledger, depth=8, seed=number) for number, ledger in enumerate(ledgers)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.go_on(1000)
    assert links_between([node]) == {}
    cluster.kill_all()
    for writer in writers:
        writer.join_cut_off()
    cluster.start()
    check_everywhere(cluster, "vol1", ledgers, "the node died")
    groups = cluster.json("group", "list")
    assert all(len(group["in_sync"]) == 2 for group in groups)
    node.stop()
    assert cluster.unsound() == 0


def test_a_volume_is_given_back_when_no_shard_uses_it(cluster):
    volume = cluster.create_volume(size="64MiB", copies=2)
    one, two, _ = cluster.nodes
    clients = [Client(one.uri(volume)) for _ in range(6)]
    assert attached_to(cluster, volume) == [one.name]
    for number, client in enumerate(clients[:-1]):
        client.close()
        time.sleep(0.2)
        last = clients[-1]
        last.write(number * BLOCK, b"x" * BLOCK)
        assert attached_to(cluster, volume) == [one.name], "somebody uses it"
    clients[-1].close()
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back")
    # Others come and go on all shards while it is handed to and fro.
    for turn in range(12):
        node = [one, two][turn % 2]
        with Client(node.uri(volume)) as client, Client(node.uri(volume)) as other:
            client.write(0, bytes([turn]) * BLOCK)
            assert other.read(0, BLOCK) == bytes([turn]) * BLOCK
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back")


def test_force_cuts_off_the_clients_of_all_shards(cluster):
    volume = cluster.create_volume(size="64MiB", copies=2)
    one, two, _ = cluster.nodes
    clients = [Client(one.uri(volume)) for _ in range(4)]
    for number, client in enumerate(clients):
        client.write(number * BLOCK, b"old!" * 1024)
    cluster.cli("volume", "attach", volume, "--node", two.name, "--force")
    for client in clients:
        with pytest.raises((NbdError, OSError)):
            for _ in range(100):
                client.write(0, b"late" * 1024)
        client.close()
    with Client(two.uri(volume)) as client:
        assert client.read(0, 4 * BLOCK) == b"old!" * 4096
    cluster.cli("volume", "detach", volume)
    again = [Client(one.uri(volume)) for _ in range(4)]
    for number, client in enumerate(again):
        client.write(number * BLOCK, b"new!" * 1024)
        client.close()
    wait_until(lambda: attached_to(cluster, volume) == [], 10, "the volume to be given back")


def test_a_snapshot_has_what_all_shards_had_acknowledged(cluster):
    volume = cluster.create_volume(size="64MiB", copies=2)
    one, two, three = cluster.nodes
    clients = [Client(one.uri(volume)) for _ in range(4)]
    for number, client in enumerate(clients):
        client.write(number * 4 * BLOCK, b"then" * 4096)
    cluster.cli("snapshot", "create", f"{volume}@monday", node=two)
    for number, client in enumerate(clients):
        client.write(number * 4 * BLOCK, b"now!" * 4096)
        client.close()
    for node in (one, two, three):
        for _ in range(node.number):
            with Client(node.uri(f"{volume}@monday")) as client:
                assert client.read(0, 16 * BLOCK) == b"then" * 16384
        with Client(node.uri(volume)) as client:
            assert client.read(0, 16 * BLOCK) == b"now!" * 16384
    cluster.cli("snapshot", "delete", f"{volume}@monday")
    # Each device's shard merges the layer and says so.
    wait_until(lambda: "monday" not in cluster.cli("snapshot", "list", volume), 60, "the snapshot to go")
    with Client(three.uri(volume)) as client:
        assert client.read(0, 16 * BLOCK) == b"now!" * 16384


def test_numbers_of_shards_that_make_no_sense(make_cluster):
    for nonsense in ["0", "65", "many"]:
        refused = run_cli("node", "--data", "/nowhere", "--shards", nonsense)
        assert refused.returncode == 2 and "from 1 to 64" in refused.stderr
    cluster = make_cluster(nodes=1, start=False, device_size="512MiB", node_options=["--devices", 2])
    node = cluster.first
    node.options = ["--shards", "3"]
    cluster.start()
    has_threads(node, ["data", "data-1"])
    assert "there are 2 devices, so there are 2 shards" in node.log()
    node.stop()
    node.options = ["--shards", "3", "--shards-without-devices"]
    cluster.start()
    has_threads(node, ["data", "data-1", "data-2"])
    node.stop()
    # Nothing said: one for each core, but not more than devices.
    node.options = []
    cluster.start()
    assert threads_of(node) == (["data", "data-1"] if len(os.sched_getaffinity(0)) > 1 else ["data"])
    node.stop()
    node.options = ["--shards", "3", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "64MiB", copies=1)
    for number in range(3):
        with Client(node.uri()) as client:
            client.write(0, bytes([number]) * BLOCK)
            assert client.read(0, BLOCK) == bytes([number]) * BLOCK
