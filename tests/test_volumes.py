"""Volumes through the command line: made, shown, resized, deleted; what it prints and what it refuses."""

import json

import pytest

from tools.harness.cluster import CliError, run_cli
from tools.harness.nbd import Client
from tools.harness.process import free_port, wait_until
from tools.harness.run import run

MIB, GIB = 2**20, 2**30


def refusal(cluster, *arguments):
    """The error text of a command that must fail; it must say something, and no panic."""
    with pytest.raises(CliError) as refused:
        cluster.cli(*arguments)
    text = refused.value.stderr
    assert text.strip() and "panicked" not in text
    return text


def test_a_volume_from_making_to_deletion(shared_cluster):
    made = shared_cluster.json("volume", "create", "life", "1GiB", "--copies", "2")
    assert made["name"] == "life" and made["size_bytes"] == GIB
    shown = shared_cluster.json("volume", "show", "life", node=shared_cluster.nodes[1])
    assert shown["name"] == "life" and shown["size_bytes"] == GIB
    listed = shared_cluster.json("volume", "list", node=shared_cluster.nodes[2])
    assert "life" in [volume["name"] for volume in listed]
    assert "life" in shared_cluster.cli("volume", "list")
    shared_cluster.delete_volume("life")
    assert "life" not in [volume["name"] for volume in shared_cluster.json("volume", "list")]
    assert "life" in refusal(shared_cluster, "volume", "show", "life")


@pytest.mark.parametrize(
    "size, size_bytes", [("1GiB", GIB), ("1G", GIB), ("512M", 512 * MIB), ("64MiB", 64 * MIB), ("1073741824", GIB)]
)
def test_sizes_as_people_write_them(shared_cluster, size, size_bytes):
    assert shared_cluster.json("volume", "create", "sized", size, "--copies", "2")["size_bytes"] == size_bytes
    shared_cluster.delete_volume("sized")


@pytest.mark.parametrize("size", ["", "0", "-1G", "lots", "1X", "99999999999999999999T", "1.5.2G"])
def test_bad_sizes_are_refused(shared_cluster, size):
    refusal(shared_cluster, "volume", "create", "bad", size, "--copies", "2")
    assert "bad" not in [volume["name"] for volume in shared_cluster.json("volume", "list")]


@pytest.mark.parametrize("name", ["", "a/b", "../x", "with space", "x" * 300, "-x", "a\nb"])
def test_bad_names_are_refused(shared_cluster, name):
    refusal(shared_cluster, "volume", "create", name, "64MiB", "--copies", "2")


def test_a_second_volume_of_the_same_name_is_refused(shared_cluster, volume):
    assert volume in refusal(shared_cluster, "volume", "create", volume, "64MiB", "--copies", "2")
    with Client(shared_cluster.first.uri(volume)) as client:
        assert client.size == GIB


def test_more_copies_than_devices_are_refused(shared_cluster):
    text = refusal(shared_cluster, "volume", "create", "many", "64MiB", "--copies", "9")
    assert "3" in text, f"the error says how many devices there are: {text}"


def test_more_space_than_the_overcommit_limit_is_refused(shared_cluster):
    refusal(shared_cluster, "volume", "create", "huge", "60TiB", "--copies", "2")


def test_resize_is_seen_by_new_connections(shared_cluster, shared_volume):
    volume = shared_volume
    with Client(shared_cluster.first.uri(volume)) as before:
        before.write(GIB - 4096, b"e" * 4096)
        shared_cluster.cli("volume", "resize", volume, "2GiB")
        # Nodes other than the one that was asked read it a moment later.
        sizes = [("nbdinfo", "--size", node.uri(volume)) for node in shared_cluster.nodes]
        for size in sizes:
            wait_until(lambda size=size: run(*size).stdout.strip() == str(2 * GIB), 10, "the new size")
        assert before.read(GIB - 4096, 4096) == b"e" * 4096, "the older connection goes on"
    with Client(shared_cluster.nodes[1].uri(volume)) as after:
        assert after.size == 2 * GIB
        assert after.read(GIB - 4096, 8192) == b"e" * 4096 + bytes(4096)
        after.write(2 * GIB - 1, b"z")
    refusal(shared_cluster, "volume", "resize", volume, "1GiB")


def test_status_says_healthy(shared_cluster, volume):
    status = shared_cluster.json("status")
    assert status["healthy"] is True
    text = shared_cluster.cli("status")
    for node in shared_cluster.nodes:
        assert node.name in text


def test_lists(shared_cluster, volume):
    assert sorted(node["name"] for node in shared_cluster.json("node", "list")) == ["n1", "n2", "n3"]
    devices = shared_cluster.json("device", "list")
    assert len(devices) == 3
    for device in devices:
        assert 0 < device["capacity_bytes"] <= 2 * GIB
        assert 0 <= device["used_bytes"] <= device["capacity_bytes"]
    groups = shared_cluster.json("group", "list")
    assert groups and all(len(set(group["in_sync"])) == 2 for group in groups)
    assert shared_cluster.json("top", "--once") is not None


def test_errors_without_a_cluster_say_what_to_do(folder):
    nobody = f"http://127.0.0.1:{free_port()}"
    done = run_cli("volume", "list", api=nobody)
    assert done.returncode != 0
    assert nobody in done.stderr, done.stderr
    done = run_cli("store", "check", folder / "nothing-there")
    assert done.returncode != 0 and "nothing-there" in done.stderr
    for words in (["frobnicate"], ["volume"], ["volume", "create"], ["node"], ["node", "--name", "x"]):
        done = run_cli(*words)
        assert done.returncode != 0 and done.stderr.strip(), words
        assert "panicked" not in done.stderr


def test_help_version_and_completion():
    assert "volume" in run_cli("--help").stdout
    assert run_cli("--version").stdout.startswith("azekura ")
    for shell in ("bash", "zsh", "fish"):
        done = run_cli("completion", shell)
        assert done.returncode == 0 and "azekura" in done.stdout
    json.loads(run_cli("version", "--json").stdout)


def test_of_several_snapshots_all_are_deleted_or_none(shared_cluster):
    shared_cluster.cli("volume", "create", "several", "64MiB")
    names = ["several@x", "several@y"]
    for name in names:
        shared_cluster.cli("snapshot", "create", name)
    assert "nosuch" in refusal(shared_cluster, "snapshot", "delete", "several@x", "several@nosuch")
    assert len(shared_cluster.json("snapshot", "list", "several")) == 2
    shared_cluster.cli("snapshot", "delete", *names)
    assert shared_cluster.json("snapshot", "list", "several") == []
    shared_cluster.delete_volume("several")
