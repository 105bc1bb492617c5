"""Starts that must fail with one clear line, starts that must wait, and nodes that are told to be what they are not."""

import os
import re
import signal
import socket
import subprocess
import time

import pytest

from tools.harness.cluster import Cluster, binary, run_cli
from tools.harness.process import wait_until
from tools.harness.run import run


def start_that_fails(node, within_s=60):
    """Runs a node that cannot start; returns what it said."""
    done = subprocess.run([binary(), *node.arguments()], capture_output=True, text=True, timeout=within_s)
    assert done.returncode != 0, f"{node.name} ended as if all were well\n{done.stderr}"
    assert "panicked" not in done.stderr, done.stderr
    return done.stderr


def test_a_port_in_use(make_cluster):
    cluster = make_cluster()
    cluster.create_volume()
    node = cluster.nodes[2]
    node.stop()
    for port in (node.listen_port, node.api_port, node.nbd_port):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            said = start_that_fails(node)
            assert str(port) in said, said
    node.start()
    cluster.wait_healthy()


def test_a_second_process_on_one_data_folder(make_cluster):
    cluster = make_cluster()
    cluster.create_volume()
    run("qemu-io", "-f", "raw", "-c", "write -P 5 0 1M", cluster.first.uri())
    intruder = Cluster(cluster.folder / "other", nodes=2).nodes[1]
    intruder.data = cluster.nodes[1].data
    intruder.cluster.config_port = cluster.config_port
    said = start_that_fails(intruder)
    assert str(intruder.data) in said, said
    cluster.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "read -P 5 0 1M", cluster.nodes[1].uri())


def test_a_data_folder_of_another_cluster(make_cluster):
    mine, other = make_cluster(), make_cluster(nodes=2)
    mine.create_volume()
    other.create_volume()
    run("qemu-io", "-f", "raw", "-c", "write -P 6 0 1M", other.first.uri())
    stray = other.nodes[1]
    stray.stop()
    mine.nodes[2].stop()
    own_folder = mine.nodes[2].data
    mine.nodes[2].data = stray.data
    said = start_that_fails(mine.nodes[2])
    assert "cluster" in said, said
    # Nothing was touched: both clusters go on with what they had.
    mine.nodes[2].data = own_folder
    mine.nodes[2].start()
    mine.wait_healthy()
    stray.start()
    other.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "read -P 6 0 1M", stray.uri())


def test_the_configuration_server_is_away_at_the_start(make_cluster, config):
    cluster = make_cluster(config=config)
    cluster.create_volume()
    run("qemu-io", "-f", "raw", "-c", "write -P 8 0 4M", cluster.first.uri())
    cluster.stop()
    early = cluster.nodes[1:]
    for node in early:
        node.start()
    for node in early:
        wait_until(lambda: str(cluster.config_port) in log_of_this_start(node), 60, "a message that names the server")
        assert node.alive, "a node gave up on a configuration server that is only late"
    cluster.start()
    for node in cluster.nodes:
        run("qemu-io", "-f", "raw", "-c", "read -P 8 0 4M", node.uri())


def log_of_this_start(node):
    return node.log().rsplit("---- start:", 1)[1].split("\n", 1)[1]


def test_a_data_folder_that_cannot_be_written(make_cluster, folder):
    cluster = make_cluster()
    blocked = folder / "a-file"
    blocked.write_text("this is no folder")
    stranger = Cluster(folder / "s", nodes=2).nodes[1]
    stranger.cluster.config_port = cluster.config_port
    stranger.data = blocked
    assert "a-file" in start_that_fails(stranger)


def test_nonsense_arguments(folder):
    for words in (
        ["--listen", "nowhere"],
        ["--device-size", "17 bananas"],
        ["--api", "127.0.0.1:99999"],
        ["--config", "not a url"],
    ):
        node = Cluster(folder / "x", nodes=2).nodes[1]
        arguments = node.arguments()
        arguments[arguments.index(words[0]) + 1] = words[1]
        done = run_cli(*arguments, within_s=60)
        assert done.returncode != 0 and done.stderr.strip(), words
        assert "panicked" not in done.stderr, done.stderr


def test_a_clean_stop_ends_with_code_zero_and_soon(make_cluster):
    cluster = make_cluster()
    cluster.create_volume(shared=True)
    # Clients that stay connected must not hold up a stop.
    from tools.harness.nbd import Client

    clients = [Client(node.uri(tcp=True)) for node in cluster.nodes]
    time.sleep(0.1)
    cluster.stop()
    for client in clients:
        client.close()


def test_a_device_that_does_not_fit_is_refused_with_the_size_that_would(folder):
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    small = folder / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=600m", "none", small)
    try:
        cluster = Cluster(folder / "c", nodes=1, device_size="4GiB")
        node = cluster.nodes[0]
        node.data = small
        said = start_that_fails(node)
        assert str(small) in said and "make room, or give a --device-size of at most" in said, said
        # What it names is a size that works.
        cluster.device_size = re.search(r"at most (\d+MiB)", said).group(1)
        try:
            cluster.start()
        finally:
            cluster.destroy()
    finally:
        # The kernel lets go of an ended process' files a moment later.
        run("umount", "--lazy", small)


def test_a_node_that_stands_still_keeps_no_command_waiting(make_cluster):
    cluster = make_cluster(nodes=1)
    cluster.first.process.signal(signal.SIGSTOP)
    try:
        done = run_cli("status", api=cluster.first.api, within_s=50)
    finally:
        cluster.first.process.signal(signal.SIGCONT)
    assert done.returncode != 0 and cluster.first.api in done.stderr, done.stderr
    assert "is it running" in done.stderr or "another node" in done.stderr, done.stderr
