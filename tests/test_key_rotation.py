"""A volume's data key gets another one in its place, while clients use the volume."""

import random
import threading
import time

import pytest

from tools.harness.cluster import CliError
from tools.harness.nbd import Client, NbdError

from .test_encryption import BLOCK, MIB, UNIT, keys_in, make, reads, text, with_keys, write

SIZE = 64 * MIB
# A rotation asks all nodes twice a second, and passes through 16 chunks.
ROTATED_WITHIN_S = 180


def numbers(cluster):
    """The generations of the cluster's one data key."""
    [record] = keys_in(cluster)
    return [generation["number"] for generation in record["generations"]]


class Load:
    """A client that writes at random, whole blocks and parts, and knows what it has written."""

    def __init__(self, node, volume, seed, span):
        self.uri, self.random, self.span = node.uri(volume), random.Random(seed), span
        self.held = bytearray(span)
        self.errors = []
        self.writes = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            with Client(self.uri) as client:
                while not self.over.is_set():
                    units = self.random.choice([1, 3, 8, 16, 21])
                    offset = self.random.randrange(0, self.span - units * UNIT, UNIT)
                    data = self.random.randbytes(units * UNIT)
                    client.write(offset, data)
                    self.held[offset : offset + len(data)] = data
                    at = self.random.randrange(0, self.span - 4 * BLOCK, UNIT)
                    assert client.read(at, 4 * BLOCK) == self.held[at : at + 4 * BLOCK], at
                    self.writes += 1
        except (OSError, NbdError, AssertionError) as error:
            self.errors.append(error)

    def end(self):
        self.over.set()
        self.thread.join(60)
        assert not self.thread.is_alive() and not self.errors, self.errors
        return bytes(self.held)


def test_a_volume_is_rekeyed_while_it_is_used(make_cluster):
    cluster = with_keys(make_cluster, config="etcd")
    n1, n2, n3 = cluster.nodes
    make(cluster, "safe", "--encrypt")
    # Dense, sparse and partly written blocks; and a chunk of which nobody will hear again.
    still = {20 * MIB: text("once", 2 * MIB), 40 * MIB + UNIT: text("part", UNIT), 63 * MIB: text("end", MIB)}
    write(n2, "safe", still)
    load = Load(n1, "safe", 7, 8 * MIB)
    while load.writes < 50:
        assert not load.errors, load.errors
        time.sleep(0.05)
    view = cluster.json("volume", "rotate-key", "safe", "--wait", ROTATED_WITHIN_S)
    assert [generation["number"] for generation in view["generations"]][-1] == 1
    assert view["volumes"] == [{"name": "safe", "done": True, "pass": None}]
    before = load.writes
    while load.writes < before + 50:
        assert not load.errors, load.errors
        time.sleep(0.05)
    held = load.end()
    deadline = time.monotonic() + ROTATED_WITHIN_S
    while numbers(cluster) != [1]:
        assert time.monotonic() < deadline, keys_in(cluster)
        time.sleep(0.2)
    # The former key is nowhere any more: what a node reads now, it reads with the new one.
    cluster.stop()
    cluster.start()
    for node in cluster.nodes:
        assert reads(node, "safe", {0: held, **still}), node.name
    assert [job for job in cluster.json("jobs") if job["kind"] == "rekey"] == []
    with pytest.raises(CliError, match="not encrypted"):
        make(cluster, "open")
        cluster.cli("volume", "rotate-key", "open")


def test_former_keys_stay_for_snapshots_and_no_longer(make_cluster):
    cluster = with_keys(make_cluster, nodes=2, config="etcd")
    n1, n2 = cluster.nodes
    make(cluster, "safe", "--encrypt")
    old = {0: text("old", 3 * MIB), 30 * MIB: text("old-too", MIB)}
    write(n1, "safe", old)
    cluster.cli("snapshot", "create", "safe@before")
    cluster.cli("volume", "clone", "safe@before", "twin")
    cluster.wait_healthy()
    write(n2, "twin", {UNIT: text("twin", UNIT)})
    view = cluster.json("volume", "rotate-key", "safe", "--wait", ROTATED_WITHIN_S)
    assert {volume["name"]: volume["done"] for volume in view["volumes"]} == {"safe": True, "twin": True}
    assert (numbers(cluster), view["snapshots"]) == ([0, 1], ["safe@before"])
    text_shown = cluster.cli("volume", "key", "twin")
    assert "until these snapshots are deleted: safe@before" in text_shown
    # What is made of the snapshot is under the former key, and is rekeyed by itself.
    cluster.cli("volume", "clone", "safe@before", "third")
    cluster.cli("volume", "revert", "safe", "--force", "--at", "now")
    deadline = time.monotonic() + ROTATED_WITHIN_S
    while not all(volume["done"] for volume in cluster.json("volume", "key", "safe")["volumes"]):
        assert time.monotonic() < deadline, cluster.cli("volume", "key", "safe")
        time.sleep(0.2)
    for name in ["safe", "third", "safe@before"]:
        assert reads(n2, name, old), name
    # A node that starts with a rotation under way takes part in it.
    n2.stop()
    view = cluster.json("volume", "rotate-key", "third")
    assert len(view["generations"]) == 3
    n2.start()
    snapshots = [snapshot["name"] for snapshot in cluster.json("snapshot", "list")]
    for snapshot in cluster.json("snapshot", "list"):
        cluster.cli("snapshot", "delete", f"{snapshot['volume']}@{snapshot['name']}")
    assert "before" in snapshots
    deadline = time.monotonic() + ROTATED_WITHIN_S
    while numbers(cluster) != [2]:
        assert time.monotonic() < deadline, cluster.cli("volume", "key", "safe")
        time.sleep(0.2)
    for node in cluster.nodes:
        for name in ["safe", "third"]:
            assert reads(node, name, old), (node.name, name)
    audited = [record["operation"] for record in cluster.json("audit")]
    assert audited.count("VolumeKeyRotate") == 2


def test_a_clone_gets_a_key_of_its_own(make_cluster):
    cluster = with_keys(make_cluster, nodes=2, config="etcd")
    n1, n2 = cluster.nodes
    make(cluster, "golden", "--encrypt")
    old = {0: text("golden", 3 * MIB), 30 * MIB + UNIT: text("golden-part", UNIT), 63 * MIB: text("golden-end", MIB)}
    write(n1, "golden", old)
    cluster.cli("snapshot", "create", "golden@v1")
    cluster.cli("volume", "clone", "golden@v1", "tenant", "--rekey")
    cluster.cli("volume", "create", "larger", "96MiB", "--from", "golden", "--rekey")
    cluster.wait_healthy()
    # While blocks are still under the source's key, clients read, and write parts of them.
    new = {0: text("tenant", UNIT), 2 * MIB: text("tenant-too", MIB)}
    write(n2, "tenant", new)
    records = {record["id"]: record for record in keys_in(cluster)}
    keys = {name: cluster.json("volume", "key", name)["id"] for name in ["golden", "tenant", "larger"]}
    assert len(records) == 3 and len(set(keys.values())) == 3, records
    deadline = time.monotonic() + ROTATED_WITHIN_S
    while [len(record["generations"]) for record in keys_in(cluster)] != [1, 1, 1]:
        assert time.monotonic() < deadline, cluster.cli("volume", "key", "tenant")
        time.sleep(0.2)
    # The source's key opens nothing of the clones any more: it goes with the source, and new processes read them.
    cluster.cli("snapshot", "delete", "golden@v1")
    cluster.cli("volume", "delete", "golden", "--snapshots", "--yes")
    assert sorted(record["id"] for record in keys_in(cluster)) == sorted([keys["tenant"], keys["larger"]])
    cluster.stop()
    cluster.start()
    for node in cluster.nodes:
        assert reads(node, "larger", old), node.name
        held = bytearray(old[0])
        for offset, data in new.items():
            held[offset : offset + len(data)] = data
        assert reads(node, "tenant", {**old, 0: bytes(held)}), node.name
    make(cluster, "open")
    with pytest.raises(CliError, match="not encrypted"):
        cluster.cli("volume", "clone", "open", "apart", "--rekey")
    assert [snapshot for snapshot in cluster.json("snapshot", "list") if snapshot["volume"] == "open"] == []


def test_a_rotation_waits_for_a_node_that_can_not_open_the_key(make_cluster):
    cluster = with_keys(make_cluster, nodes=2, config="etcd")
    n1, n2 = cluster.nodes
    make(cluster, "safe", "--encrypt")
    write(n1, "safe", {0: text("old", MIB)})
    # The file is read whenever a key is needed: n2 keeps the first key in memory, and can't open another.
    kek = cluster.folder / f"{n2.name}.kek"
    kek.rename(f"{kek}.away")
    cluster.json("volume", "rotate-key", "safe")
    deadline = time.monotonic() + 60
    while not any("n2: it can't open the new key" in why for why in cluster.json("volume", "key", "safe")["waits"]):
        assert time.monotonic() < deadline, cluster.cli("volume", "key", "safe")
        time.sleep(0.2)
    with pytest.raises(CliError, match="still on its way"):
        cluster.cli("volume", "rotate-key", "safe")
    write(n1, "safe", {MIB: text("meanwhile", MIB)})
    kek.with_name(f"{kek.name}.away").rename(kek)
    deadline = time.monotonic() + ROTATED_WITHIN_S
    while numbers(cluster) != [1]:
        assert time.monotonic() < deadline, cluster.cli("volume", "key", "safe")
        time.sleep(0.2)
    assert reads(n2, "safe", {0: text("old", MIB), MIB: text("meanwhile", MIB)})
