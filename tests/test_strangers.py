"""Strangers at every port at a time, who say nothing, half of something, or nonsense: what they cost, and whom they
keep out."""

import contextlib
import os
import random
import resource
import socket
import struct

import pytest

from tools.harness.cluster import HOST, run_cli
from tools.harness.nbd import Client
from tools.harness.process import free_port, wait_until

MIB = 1 << 20
# So many connect to each port.
STRANGERS = 300
# An iSCSI login that says it has 64 KiB of text, and the common header of an NVMe/TCP capsule of 8 KiB.
LOGIN = bytes([0x43, 0x87, 0, 0, 0, 0, 255, 255]) + bytes(40)
ICREQ = struct.pack("<BBBBIHBBI", 0, 0, 128, 0, 128, 0, 0, 0, 0) + bytes(112)
CAPSULE = struct.pack("<BBBBI", 4, 0, 72, 72, 72 + 8192)
# What each port's strangers begin with, and do not end.
BEGINNINGS = {
    "listen": [b"", b"\x16\x03\x01\x3e\x80\x01\x00\xff\xff" + bytes(9000), b"AZEK" + bytes(2000)],
    "api": [b"", b"POST /v1/volumes HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n{", b"\x16\x03\x01\x3e\x80"],
    "nbd": [b"", b"\0\0\0\3IHAVEOPT\0\0\0\x05\0\0\0\0", b"\0\0\0\3IHAVEOPT\0\0\0\x07\0\0\x10\0" + bytes(2000)],
    "iscsi": [b"", LOGIN, LOGIN + b"InitiatorName=" + b"x" * 60000],
    "nvme": [b"", ICREQ, ICREQ + CAPSULE + bytes(8000)],
    "discovery": [b"", ICREQ, ICREQ + CAPSULE + bytes(8000)],
}


@pytest.fixture
def guarded(make_cluster):
    """A node that asks for grants at every port, with a volume, and the ports."""
    cluster = make_cluster(nodes=1, api_access="grants", start=False)
    node = cluster.first
    ports = {name: free_port() for name in ("iscsi", "nvme", "discovery")}
    node.options = ["--nbd-transport", "tls", "--ask-loopback-hosts", "--iscsi", f"{HOST}:{ports['iscsi']}"]
    node.options += ["--nvme", f"{HOST}:{ports['nvme']}", "--nvme-discovery", f"{HOST}:{ports['discovery']}"]
    node.options += ["--shards", "2", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "64MiB", copies=1)
    ports |= {"listen": node.listen_port, "api": node.api_port, "nbd": node.nbd_port}
    return cluster, ports


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(node):
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def come(strangers, port, beginnings):
    for number in range(STRANGERS):
        stranger = strangers.enter_context(contextlib.closing(socket.create_connection((HOST, port), timeout=20)))
        # It may have been closed already: there are more of its kind than are let in.
        with contextlib.suppress(OSError):
            stranger.settimeout(0.2)
            stranger.sendall(beginnings[number % len(beginnings)])


def test_strangers_at_every_port_cost_little_and_keep_nobody_out(guarded, many_files):
    cluster, ports = guarded
    node = cluster.first
    assert set(ports) == set(BEGINNINGS), "every port has strangers"
    before, files = node.process.resident_bytes(), open_files(node)
    with Client(node.uri("vol1")) as client, contextlib.ExitStack() as strangers:
        client.write(0, b"a" * MIB)
        for name, port in ports.items():
            come(strangers, port, BEGINNINGS[name])
            # Who is there goes on, and people of this machine are listened to.
            client.write(MIB, b"b" * MIB)
            assert client.read(0, MIB) == b"a" * MIB, name
            assert run_cli("volume", "list", api=node.api).returncode == 0, name
        grown = node.process.resident_bytes() - before
        assert grown < 192 * MIB, f"{grown / MIB:.0f} MiB for {STRANGERS * len(ports)} strangers"
        # Somebody comes anew, who is no stranger.
        with Client(node.uri("vol1")) as other:
            assert other.read(MIB, MIB) == b"b" * MIB
    wait_until(lambda: open_files(node) <= files + 8, 60, "the strangers' connections to be gone")
    assert "panicked" not in node.log()


def test_nonsense_at_every_port_ends_its_own_connection(guarded):
    cluster, ports = guarded
    node = cluster.first
    source = random.Random(12)
    for name, port in ports.items():
        for _ in range(60):
            with socket.create_connection((HOST, port), timeout=20) as stranger:
                kept = source.choice(BEGINNINGS[name])
                noise = kept[: source.randrange(len(kept) + 1)] + source.randbytes(source.randrange(1, 3000))
                with contextlib.suppress(OSError):
                    stranger.sendall(noise)
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(65536):
                        pass
        assert node.alive, f"{name}: {node.log()[-2000:]}"
    assert "panicked" not in node.log()
    with Client(node.uri("vol1")) as client:
        client.write(0, b"c" * MIB)
        assert client.read(0, MIB) == b"c" * MIB
    assert len(node.log().splitlines()) < 400, "a stranger does not fill the log"
