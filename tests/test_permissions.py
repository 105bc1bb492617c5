"""Who may reach a node's files, sockets and API: modes of all that it makes, and requests that web pages could send."""

import grp
import json
import os
import socket
import stat
import subprocess

from tools.harness.cluster import Cluster, binary, run_cli
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


def ask(node, request):
    """One request as it stands; status and body."""
    with socket.create_connection(("127.0.0.1", node.api_port), timeout=30) as connection:
        connection.sendall(request.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    head, body = answer.split("\r\n\r\n", 1)
    return int(head.split()[1]), json.loads(body) if body else None


def test_a_web_page_can_neither_ask_nor_change(make_cluster):
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    node.options = ["--api-names", "storage.example,Other.example"]
    cluster.start()
    tail = "Connection: close\r\n\r\n"
    for host in (f"127.0.0.1:{node.api_port}", "localhost", "storage.example:80", "other.example"):
        assert ask(node, f"GET /v1/health HTTP/1.1\r\nHost: {host}\r\n{tail}")[0] == 200, host
    status, body = ask(node, f"GET /v1/volumes HTTP/1.1\r\nHost: rebound.example\r\n{tail}")
    assert (status, body["code"]) == (421, "wrong_host") and "--api-names" in body["hint"], body
    drain = f"POST /v1/nodes/{node.name}/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{tail}"
    status, body = ask(node, drain)
    assert (status, body["code"]) == (415, "not_json") and "Content-Type" in body["hint"], body
    # The command line says what is wanted.
    assert run_cli("node", "undrain", node.name, api=node.api).returncode == 0
