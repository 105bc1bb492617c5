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
            # Once, also where several parts of the program have something to say.
            assert said.count(str(port)) == said.count("can't listen") == said.count("in use") == 1, said
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


def test_a_device_keeps_its_size_and_the_log_says_so(make_cluster):
    cluster = make_cluster(nodes=1)
    node = cluster.first
    node.stop()
    assert "keeps that" not in node.log()
    cluster.device_size = "1GiB"
    # An empty folder is to become a device: that one is as large as new ones are.
    (node.data / "device-1").mkdir()
    node.start()
    wait_until(lambda: run_cli("device", "list", api=node.api).returncode == 0, 60, "the node to start")
    wait_until(lambda: len(cluster.json("device", "list")) == 2, 60, "the new device")
    said = [line for line in node.log().splitlines() if "keeps that" in line]
    assert len(said) == 1 and "device-0 has" in said[0] and "--device-size asks for" in said[0], said
    sizes = {device["name"]: device["capacity_bytes"] for device in cluster.json("device", "list")}
    assert sizes["device-0"] < 512 * 2**20 < sizes["device-1"], sizes


def test_a_node_that_stands_still_keeps_no_command_waiting(make_cluster):
    cluster = make_cluster(nodes=1)
    cluster.first.process.pause()
    try:
        done = run_cli("status", api=cluster.first.api, within_s=50)
    finally:
        cluster.first.process.signal(signal.SIGCONT)
    assert done.returncode != 0 and cluster.first.api in done.stderr, done.stderr
    assert "is it running" in done.stderr or "another node" in done.stderr, done.stderr


def test_a_file_of_options_is_checked_as_the_node_checks_them(tmp_path):
    file = tmp_path / "config.toml"
    usual = {"data": tmp_path / "d", "serve-config": "127.0.0.1:7179", "name": "n1"}
    for option, value, told in [
        ("name", "a 4", "letters, digits"),
        ("listen", "0.0.0.0:7101", "announced to other nodes"),
        ("device-size", "1MiB", "at least 320MiB"),
        ("memory", "1KiB", "at least 2 MiB"),
    ]:
        options = {key: said for key, said in usual.items() if key != option}
        lines = [f'{key} = "{said}"' for key, said in options.items()]
        file.write_text("\n".join(["[node]", *lines, f'{option} = "{value}"', ""]))
        refused = run_cli("config", "check", file)
        assert refused.returncode == 1, f"{option}: {refused.stdout}"
        assert f"line {len(lines) + 2}: {option}: " in refused.stderr and told in refused.stderr, refused.stderr
        node = run_cli("node", "--config-file", file)
        assert node.returncode == 1 and told in node.stderr, node.stderr
    lines = [f'{key} = "{said}"' for key, said in usual.items()]
    file.write_text("\n".join(["[node]", *lines, 'key-file = "/no/kek"', ""]))
    noted = run_cli("config", "check", file)
    assert noted.returncode == 0 and "note: key-file" in noted.stdout, noted.stdout + noted.stderr
    assert not (tmp_path / "d").exists(), "nothing was made"


def test_a_node_that_waits_for_its_configuration_says_so(make_cluster):
    cluster = make_cluster(nodes=2)
    first, second = cluster.nodes
    second.stop()
    first.stop()
    with open(cluster.folder / "waiting.log", "wb") as log:
        process = subprocess.Popen([binary(), *second.arguments()], stdout=log, stderr=log)
    try:
        told = lambda: run_cli("status", api=second.api).stderr  # noqa: E731
        wait_until(lambda: "this node is starting" in told(), 30, "the word of a node that waits")
        assert str(cluster.config_port) in told(), told()
        first.start()
        wait_until(lambda: run_cli("status", api=second.api).returncode == 0, 60, "the node to serve")
    finally:
        process.terminate()
        process.wait(60)
