"""Connections that do not behave: their number, memory and time are limited, and other clients go on."""

import struct
import time

import pytest

from tools.harness.nbd import CMD_READ, CMD_WRITE, OPT_INFO, REQUEST_MAGIC, Client
from tools.harness.process import wait_until
from tools.harness.raw_nbd import Handshake

MIB = 1 << 20
# The least that a node takes; one half of it is for requests above 1 MiB.
MEMORY = 72 * MIB
CLIENTS_MAX = 220
# What goes with 200 connections besides: receive buffers of at most 256 KiB, and what the kernel lends.
CONNECTION_BYTES = 300 << 10


@pytest.fixture
def cluster(make_cluster):
    options = ["--client-memory", "72MiB", "--client-connections", CLIENTS_MAX]
    cluster = make_cluster(nodes=1, node_options=options)
    cluster.create_volume("vol1", "1GiB", copies=1)
    return cluster


def header(command, length, cookie=1):
    return struct.pack(">IHHQQI", REQUEST_MAGIC, 0, command, cookie, 0, length)


def send_what_is_taken(client, data):
    """Sends until the node takes no more, and returns the rest."""
    client.socket.setblocking(False)
    try:
        while data:
            data = data[client.socket.send(data) :]
    except BlockingIOError:
        pass
    finally:
        client.socket.settimeout(60)
    return data


def works(client):
    """A client that reads and writes as usual."""
    for length in (4096, 64 << 10, MIB):
        data = bytes([length >> 12 & 255]) * length
        client.write(0, data)
        assert client.read(0, length) == data


def test_payloads_that_never_end_take_no_more_than_the_budget(cluster):
    node = cluster.first
    before = node.process.resident_bytes()
    payload = memoryview(header(CMD_WRITE, 32 * MIB) + bytes(32 * MIB - 1))
    silent = [(Client(node.uri()), payload) for _ in range(200)]
    for _ in range(5):
        silent = [(client, send_what_is_taken(client, rest)) for client, rest in silent]
    with Client(node.uri()) as client:
        works(client)
        grown = node.process.resident_bytes() - before
        assert grown < MEMORY + len(silent) * CONNECTION_BYTES, f"{grown >> 20} MiB more"
        # A long one waits behind the long ones that came before, which are given up one by one.
        for other, _ in silent[2:]:
            other.socket.close()
        client.write(0, bytes(16 * MIB))
    assert "neither send nor read" in node.log()
    for other, _ in silent[:2]:
        other.socket.close()


def test_answers_that_nobody_reads_take_no_more_than_the_budget(cluster):
    node = cluster.first
    with Client(node.uri()) as client:
        for at in range(32):
            client.write(at * MIB, bytes([at + 1]) * MIB)
        before = node.process.resident_bytes()
        silent = [Client(node.uri()) for _ in range(50)]
        for reader in silent:
            send_what_is_taken(reader, b"".join(header(CMD_READ, 4 * MIB, cookie) for cookie in range(20)))
        works(client)
        grown = node.process.resident_bytes() - before
        assert grown < 2 * MEMORY + len(silent) * CONNECTION_BYTES, f"{grown >> 20} MiB more"
        for reader in silent:
            reader.socket.close()
        works(client)


def test_who_does_not_say_what_he_wants_is_sent_away(cluster):
    uri = cluster.first.uri()
    begin = time.monotonic()
    with Handshake(uri) as silent, Client(uri) as client, Client(uri) as idle:
        silent.socket.settimeout(60)
        assert silent.socket.recv(1) == b"", "the node said something"
        assert 8 < time.monotonic() - begin < 30
        works(client)
        works(idle)
    wait_until(lambda: "no export opened in 10s" in cluster.first.log(), 10, "a line in the log")


def test_further_clients_are_refused_and_other_nodes_are_not(make_cluster):
    cluster = make_cluster(nodes=2, node_options=["--client-connections", 10])
    cluster.create_volume("vol1", "1GiB")
    uri = cluster.first.uri()
    clients = [Client(uri) for _ in range(10)]
    for _ in range(20):
        with pytest.raises((ConnectionError, AssertionError)):
            Handshake(uri)
    # The line comes from another thread than the refusals.
    line = "--client-connections allows no more"
    wait_until(lambda: line in cluster.first.log(), 10, "a line in the log")
    assert cluster.first.log().count(line) == 1
    # The other node's connections have places of their own.
    cluster.nodes[1].stop()
    cluster.nodes[1].start()
    cluster.wait_healthy()
    works(clients[0])
    clients[1].close()
    wait_until(lambda: opens(uri), 30, "a place to be free")


def opens(uri):
    try:
        with Handshake(uri) as client:
            client.ask(OPT_INFO, struct.pack(">I", 4) + b"vol1" + struct.pack(">H", 0))
        return True
    except (ConnectionError, AssertionError):
        return False
