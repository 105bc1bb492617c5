"""The key that wraps volumes' keys is replaced while volumes are used, and not before every node has the new one."""

import pytest

from tools.harness.cluster import CliError
from tools.harness.nbd import Client
from tools.harness.process import wait_until

DATA = b"\x5a" * 2**20


def key_file(node, *lines):
    path = node.cluster.folder / f"{node.name}.kek"
    path.write_text("".join(f"{version} {digit * 64}\n" for version, digit in lines))
    path.chmod(0o600)
    return path


@pytest.fixture
def cluster(make_cluster):
    cluster = make_cluster(start=False, nodes=3, device_size="512MiB", config="etcd")
    for node in cluster.nodes:
        node.options = ["--key-file", key_file(node, (1, "7"))]
    cluster.start()
    for name in ("one", "two", "three"):
        cluster.cli("volume", "create", name, "64MiB", "--encrypt")
    cluster.wait_healthy()
    return cluster


def versions(cluster):
    shown = cluster.json("kek", "show")
    return {version["version"]: version["keys"] for version in shown["versions"]}


def test_a_new_key_takes_the_place_of_the_old_one(cluster):
    n1, n2, n3 = cluster.nodes
    with Client(n1.uri("one")) as client:
        client.write(0, DATA)
    assert versions(cluster) == {1: 3}
    assert "VERSION" in cluster.cli("kek", "show")

    key_file(n1, (1, "7"), (2, "8"))
    with pytest.raises(CliError, match="node n2 does not have version 2"):
        cluster.cli("kek", "rewrap")
    key_file(n2, (1, "7"), (2, "8"))
    key_file(n3, (1, "7"), (2, "9"))
    with pytest.raises(CliError, match="version 2 of node n3 is another key"):
        cluster.cli("kek", "rewrap", "--force")
    assert versions(cluster) == {1: 3, 2: 0}, "nothing was wrapped"
    shown = cluster.json("kek", "show")
    assert "n3" in shown["why_not"] and shown["newest"] == 2, shown

    key_file(n3, (1, "7"), (2, "8"))
    n3.kill()
    wait_until(lambda: "sign of life" in str(cluster.json("kek", "show")["nodes"]), 60, "n3 to be missed")
    with pytest.raises(CliError, match="n3"):
        cluster.cli("kek", "rewrap")
    n3.start()
    cluster.wait_healthy()
    wait_until(lambda: "why_not" not in cluster.json("kek", "show"), 60, "all nodes to have the key")

    told = cluster.json("kek", "rewrap")
    assert (told["version"], told["rewrapped"], told["left"], told["failed"]) == (2, 3, 0, []), told
    assert versions(cluster) == {1: 0, 2: 3}
    assert cluster.json("kek", "rewrap")["rewrapped"] == 0, "it is done"

    # Nobody needs the old key any more: also not after a restart.
    for node in cluster.nodes:
        key_file(node, (2, "8"))
    for node in cluster.nodes:
        node.stop()
        node.start()
        cluster.wait_healthy()
    for node in cluster.nodes:
        with Client(node.uri("one")) as client:
            assert client.read(0, len(DATA)) == DATA
    assert versions(cluster) == {2: 3}

    # One that is needed is taken out of a node's file: the node serves on, and that it could not after a start is told.
    key_file(n3, (3, "9"))
    told = lambda: " ".join(cluster.json_of_unhealthy("status")["problems"])  # noqa: E731
    wait_until(lambda: "node n3 does not have version 2 of 'file', which wraps 3 data keys" in told(), 60, "that")
    with Client(n3.uri("one")) as client:
        assert client.read(0, len(DATA)) == DATA
    key_file(n3, (2, "8"))
    cluster.wait_healthy()


def test_without_a_key_file_it_is_said(make_cluster):
    cluster = make_cluster(nodes=1)
    assert "--key-file" in cluster.cli("kek", "show")
    with pytest.raises(CliError, match="--key-file"):
        cluster.cli("kek", "rewrap")


def test_more_keys_than_one_request_takes_are_wrapped(make_cluster):
    cluster = make_cluster(start=False, nodes=1)
    [node] = cluster.nodes
    node.options = ["--key-file", key_file(node, (1, "7"))]
    cluster.start()
    for number in range(230):
        cluster.cli("volume", "create", f"v{number}", "1MiB", "--encrypt", "--copies", 1)
    key_file(node, (1, "7"), (2, "8"))
    told = cluster.json("kek", "rewrap")
    assert (told["rewrapped"], told["left"], told["failed"]) == (230, 0, []), told
    assert versions(cluster) == {1: 0, 2: 230}
