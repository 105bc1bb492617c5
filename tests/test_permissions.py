"""Who may reach a node's files and sockets: modes of all that it makes."""

import grp
import os
import stat
import subprocess

from tools.harness.cluster import Cluster, binary
from tools.harness.nbd import Client


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_nothing_that_a_node_makes_is_for_others(make_cluster):
    before = os.umask(0o022)
    try:
        cluster = make_cluster(nodes=1)
    finally:
        os.umask(before)
    node = cluster.first
    cluster.create_volume("vol1", "64MiB", copies=1)
    made = [node.data, *node.data.rglob("*")]
    assert len(made) > 5, made
    open_to_others = [f"{path}: {mode(path):o}" for path in made if mode(path) & 0o077]
    assert not open_to_others, open_to_others
    assert mode(node.socket) == 0o600
    node.stop()
    node.start()
    cluster.wait_healthy()
    assert mode(node.socket) == 0o600


def test_a_socket_is_given_to_a_group(make_cluster):
    group = grp.getgrgid(os.getgid()).gr_name
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    node.options = ["--nbd-socket-group", group]
    cluster.start()
    cluster.create_volume("vol1", "64MiB", copies=1)
    assert (mode(node.socket), os.stat(node.socket).st_gid) == (0o660, os.getgid())
    with Client(node.uri()) as client:
        client.write(0, b"x" * 4096)
    node.stop()
    node.options = ["--nbd-socket-group", os.getgid(), "--nbd-socket-mode", "620"]
    node.start()
    cluster.wait_healthy()
    assert mode(node.socket) == 0o620


def test_a_group_that_is_none_is_told(folder):
    node = Cluster(folder / "c", nodes=1).first
    for options, told in (
        (["--nbd-socket-group", "no-such-group"], "no-such-group"),
        (["--nbd-socket-mode", "rw"], "octal"),
    ):
        node.options = options
        done = subprocess.run([binary(), *node.arguments()], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and told in done.stderr and "panicked" not in done.stderr, done.stderr
