"""Two processes with one identity: a copy of a node's data folder is never taken for the node beside the node."""

import os
import signal
import subprocess

import pytest

from tests.test_start import start_that_fails
from tools.harness.cluster import Cluster
from tools.harness.process import wait_until
from tools.harness.run import run

ENDS_WITHIN_S = 60


def copy_of(node):
    """A node like this one, elsewhere, on a copy of its data folder."""
    cluster = node.cluster
    other = Cluster(cluster.folder / "copy", nodes=node.number).nodes[-1]
    other.cluster.config_port = cluster.config_port
    other.data.mkdir(parents=True)
    copied = subprocess.run(
        ["cp", "-a", "--sparse=always", *node.data.iterdir(), other.data], stderr=subprocess.PIPE, text=True
    )
    # NAME.new is a file that is about to replace NAME: it may go while the folder is copied.
    assert all(".new'" in line for line in copied.stderr.splitlines()), copied.stderr
    return other


def alive(cluster):
    return sum(node["alive"] for node in cluster.json("node", "list"))


def pattern(node, number):
    run("qemu-io", "-f", "raw", "-c", f"read -P {number} 0 8M", node.uri())


@pytest.mark.parametrize("number", [2, 3])
def test_a_copy_of_the_folder_of_a_node_that_runs_is_refused(make_cluster, number):
    cluster = make_cluster()
    cluster.create_volume()
    run("qemu-io", "-f", "raw", "-c", "write -P 1 0 8M", cluster.first.uri())
    node = cluster.nodes[number - 1]
    copy = copy_of(node)
    run("qemu-io", "-f", "raw", "-c", "write -P 2 0 8M", cluster.first.uri())
    said = start_that_fails(copy)
    assert f"node {node.name} runs already" in said and "never start a copy" in said, said
    assert f":{node.listen_port}" in said and f":{copy.listen_port}" in said, said
    cluster.wait_healthy()
    for reader in cluster.nodes:
        pattern(reader, 2)


def test_a_process_ends_when_another_one_has_become_its_node(make_cluster):
    cluster = make_cluster()
    cluster.create_volume()
    run("qemu-io", "-f", "raw", "-c", "write -P 1 0 8M", cluster.first.uri())
    node = cluster.nodes[2]
    os.kill(node.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: alive(cluster) == 2, 60, "its signs of life to end")
        copy = copy_of(node)
        copy.start()
        cluster.nodes[2] = copy
        try:
            cluster.wait_healthy()
            run("qemu-io", "-f", "raw", "-c", "write -P 3 0 8M", cluster.first.uri())
            os.kill(node.pid, signal.SIGCONT)
            wait_until(lambda: not node.alive, ENDS_WITHIN_S, "the process that was replaced to end")
            said = node.log()
            assert f"another process has started as this node ({node.name})" in said, said
            assert f":{copy.listen_port}" in said and "panicked" not in said, said
            cluster.wait_healthy()
            for reader in cluster.nodes:
                pattern(reader, 3)
            assert cluster.json("scrub", "vol1", "--wait")["findings"] == 0
        finally:
            copy.kill()
    finally:
        if node.alive:
            os.kill(node.pid, signal.SIGCONT)
