"""Sockets for volumes that are made while nodes run: `azekura volume expose`."""

import grp
import os
import socket
import stat

import pytest

from tools.harness.cluster import CliError
from tools.harness.process import wait_until
from tools.harness.vhost import Client


@pytest.fixture(scope="module")
def cluster(module_cluster):
    """Three nodes; n1 and n2 have folders for sockets."""
    cluster = module_cluster(start=False)
    group = grp.getgrgid(os.getgid()).gr_name
    for node in cluster.nodes[:2]:
        node.sockets = cluster.folder / f"{node.name}-sockets"
        node.sockets.mkdir()
        node.options = ["--vhost-folder", str(node.sockets), "--vhost-socket-group", group, "--shards", "2"]
        node.options += ["--shards-without-devices"]
    cluster.start()
    for name in ["vol1", "vol2"]:
        cluster.create_volume(name, "64MiB")
    return cluster


def expose(cluster, volume, *options, does="expose"):
    """Asked of another node than the one that is meant."""
    return cluster.json("volume", does, volume, "--vhost", *options, node=cluster.nodes[2])


def shown(cluster, volume):
    endpoints = cluster.json("volume", "show", volume)["endpoints"]
    return [end["address"] for end in endpoints if end["protocol"] == "vhost-user"]


def read(path):
    client = Client(path, slot=4096).start()
    try:
        return client.rings[0].read(0, 4096)
    finally:
        client.close()


def test_a_socket_is_there_after_restarts_and_goes_when_it_is_taken_back(cluster):
    node = cluster.nodes[0]
    path = node.sockets / "vol1.sock"
    answer = expose(cluster, "vol1", "--node", "n1")
    assert [end["address"] for end in answer["endpoints"]].count(f"vol1=unix:{path}") == 1
    expose(cluster, "vol1", "--node", "n1")
    found = os.stat(path)
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, os.getgid())
    one = Client(path, slot=4096).start()
    one.rings[0].write(0, b"1" * 4096)
    one.close()
    for end in [node.stop, node.kill]:
        end()
        node.start()
        cluster.wait_healthy()
        wait_until(lambda: shown(cluster, "vol1") == [f"vol1=unix:{path}"], 30, "the socket in the configuration")
        assert read(path) == b"1" * 4096
    # Somebody removes the file: the same words make it anew.
    path.unlink()
    expose(cluster, "vol1", "--node", "n1")
    assert read(path) == b"1" * 4096
    stays = Client(path, slot=4096).start()
    expose(cluster, "vol1", "--node", "n1", does="unexpose")
    assert shown(cluster, "vol1") == []
    wait_until(lambda: not path.exists(), 10, "the file's end")
    assert stays.rings[0].read(0, 4096) == b"1" * 4096, "who is connected stays"
    stays.close()
    node.stop()
    node.start()
    cluster.wait_healthy()
    assert not path.exists()
    with pytest.raises(CliError, match="was made by"):
        expose(cluster, "vol1", "--node", "n1", does="unexpose")


def test_it_ends_with_its_volume(cluster):
    node = cluster.nodes[1]
    cluster.create_volume("vol3", "64MiB")
    cluster.json("volume", "expose", "vol3", "--vhost", "a", node=node)
    cluster.json("volume", "expose", "vol3", "--vhost", str(node.sockets / "b"), node=node)
    assert shown(cluster, "vol3") == [f"vol3=unix:{node.sockets / name}" for name in "ab"]
    read(node.sockets / "b")
    cluster.delete_volume("vol3")
    wait_until(lambda: not list(node.sockets.iterdir()), 10, "the files' end")
    # The next volume of its name is another one.
    cluster.create_volume("vol3", "64MiB")
    assert shown(cluster, "vol3") == []
    cluster.delete_volume("vol3")


def test_what_can_not_be_says_what_to_do(cluster):
    node = cluster.nodes[1]

    def why(*words, volume="vol1"):
        with pytest.raises(CliError) as error:
            cluster.json("volume", "expose", volume, "--vhost", *words, node=node)
        return str(error.value)

    (node.sockets / "file").write_text("")
    assert "is no socket: remove it" in why("file")
    assert (node.sockets / "file").exists()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(node.sockets / "other"))
        other.listen()
        assert "somebody listens at" in why("other")
    assert "is not in its folder for sockets" in why("../x")
    assert "is not in its folder for sockets" in why("/tmp/x")
    assert "call it by a shorter name" in why("x" * 120)
    assert "--vhost-folder" in why("--node", "n3")
    assert "no volume" in why(volume="none")
    assert "n9" in why("--node", "n9")
    cluster.json("volume", "expose", "vol1", "--vhost", "mine", node=node)
    assert "volume vol1 is served at" in why("mine", volume="vol2")
    # A socket that nobody listens at any more is in nobody's way.
    os.unlink(node.sockets / "other")
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(node.sockets / "left"))
    cluster.json("volume", "expose", "vol1", "--vhost", "left", node=node)
    assert shown(cluster, "vol1") == [f"vol1=unix:{node.sockets / name}" for name in ("mine", "left")]
    cluster.json("volume", "unexpose", "vol1", "--vhost", "left", node=node)
    assert shown(cluster, "vol1") == [f"vol1=unix:{node.sockets / 'mine'}"]
    cluster.json("volume", "unexpose", "vol1", "--vhost", node=node)
    assert shown(cluster, "vol1") == []
    for name in ["file", "left"]:
        (node.sockets / name).unlink(missing_ok=True)
