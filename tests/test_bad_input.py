"""What is not a client: noise, lies about lengths and half-closed sockets on every port. The cluster serves on."""

import random
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tools.harness.nbd import OPT_GO, OPT_LIST, OPTION_MAGIC, REQUEST_MAGIC, Client
from tools.harness.raw_nbd import Handshake

HOST = "127.0.0.1"


def ports(cluster):
    """Every TCP port that the first node listens on."""
    node = cluster.first
    return {"data": node.listen_port, "api": node.api_port, "nbd": node.nbd_port, "config": cluster.config_port}


def still_serves(cluster, volume, mark):
    cluster.wait_healthy()
    data = random.Random(mark).randbytes(4096)
    for node in cluster.nodes:
        with Client(node.uri(volume, tcp=True)) as client:
            client.write(node.number * 4096, data)
            assert client.read(node.number * 4096, 4096) == data
    for node in cluster.nodes:
        assert "panicked" not in node.log(), node.process.log_tail()


def send_and_hang_up(port, data, half_close=False):
    """Sends bytes and waits until the server has had its say or 2 s have passed. Being cut off is fine."""
    with socket.create_connection((HOST, port), timeout=2) as connection:
        try:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            pass


NOISE = {
    "nothing": b"",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "http": b"GET /" + b"A" * 60000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "http-lies": b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n{",
    "http2-broken": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" * 50,
    "lengths": struct.pack("<QQQQ", 2**64 - 1, 2**63, 2**32, 2**31) * 64,
    "random": random.Random(5).randbytes(100_000),
}


@pytest.mark.parametrize("name", ["data", "api", "nbd", "config"])
def test_noise_on_a_port(shared_cluster, volume, name):
    port = ports(shared_cluster)[name]
    cases = [(port, noise, half_close) for noise in NOISE.values() for half_close in (False, True)]
    with ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(lambda case: send_and_hang_up(*case), cases))
    still_serves(shared_cluster, volume, mark=1)


@pytest.mark.parametrize("name", ["data", "api", "nbd", "config"])
def test_many_silent_connections(shared_cluster, volume, name):
    """Connections that say nothing take a place each, and no more."""
    port = ports(shared_cluster)[name]
    silent = [socket.create_connection((HOST, port), timeout=10) for _ in range(200)]
    try:
        still_serves(shared_cluster, volume, mark=2)
    finally:
        for connection in silent:
            connection.close()
    still_serves(shared_cluster, volume, mark=3)


def cut_off(talk):
    """True when the server closed the connection (or reset it)."""
    try:
        talk.socket.settimeout(30)
        while talk.socket.recv(65536):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def test_nbd_option_lies(shared_cluster, volume):
    uri = shared_cluster.first.uri(tcp=True)
    # An option as long as memory, with nothing behind it.
    with Handshake(uri) as talk:
        talk.send(OPT_GO, length=0xFFFFFFFF)
        talk.socket.shutdown(socket.SHUT_WR)
        assert cut_off(talk)
    # Wrong magic.
    with Handshake(uri) as talk:
        talk.socket.sendall(struct.pack(">QII", OPTION_MAGIC ^ 1, OPT_LIST, 0))
        assert cut_off(talk)
    # A name's length beyond its option; a name that is no text; a count of infos beyond its option.
    for payload in (b"\xff\xff\xff\xff", b"\0\0\0\x05nam", b"\0\0\0\x02\xff\xfe\0\0", b"\0\0\0\0\xff\xff", b""):
        with Handshake(uri) as talk:
            talk.send(OPT_GO, payload)
            try:
                kind, _ = talk.reply()
                assert kind & 0x80000000, payload
            except ConnectionError:
                pass
    # Client flags that were never offered.
    with Handshake(uri, client_flags=0xFFFFFFFF) as talk:
        assert cut_off(talk)
    still_serves(shared_cluster, volume, mark=4)


def request_and_hang_up(uri, request, half_close):
    """Sends a request by hand and waits until the server has had its say or 2 s have passed."""
    client = Client(uri, timeout_s=2)
    try:
        client.socket.sendall(request)
        if half_close:
            client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(65536):
            pass
    except OSError:
        pass
    finally:
        client.socket.close()


def test_nbd_request_lies(shared_cluster, volume):
    uri = shared_cluster.first.uri(volume, tcp=True)
    requests = [
        struct.pack(">IHHQQI", REQUEST_MAGIC ^ 1, 0, 0, 1, 0, 4096),
        struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 1, 1, 0, 0xFFFFFFFF),
        struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 0, 1, 0, 0xFFFFFFFF),
        struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 0, 1, 2**64 - 1, 4096),
        struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 4, 1, 2**64 - 4096, 0xFFFFFFFF),
        struct.pack(">IHHQQI", REQUEST_MAGIC, 0xFFFF, 77, 1, 0, 4096),
        struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 1, 1, 0, 65536) + b"half of it",
        struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 0, 1, 0, 0),
    ]
    cases = [(request, half_close) for request in requests for half_close in (False, True)]
    with ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(lambda case: request_and_hang_up(uri, *case), cases))
    still_serves(shared_cluster, volume, mark=5)


def test_clients_that_vanish_in_the_middle(shared_cluster, volume):
    """A hundred connections closed with requests in flight, in every state."""
    uri = shared_cluster.first.uri(volume, tcp=True)
    generator = random.Random(9)
    for _ in range(100):
        client = Client(uri)
        for _ in range(generator.randrange(8)):
            if generator.random() < 0.5:
                client.send(1, generator.randrange(1000) * 4096, data=bytes(generator.choice([512, 4096, 65536])))
            else:
                client.send(0, generator.randrange(1000) * 4096, generator.choice([512, 4096, 65536]))
        if generator.random() < 0.5:
            client.socket.sendall(struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 1, 99, 0, 65536) + bytes(1000))
        client.socket.close()
    still_serves(shared_cluster, volume, mark=6)


def test_a_client_that_never_reads_does_not_stop_the_others(shared_cluster, shared_volume):
    """Replies that nobody takes are bounded: the greedy connection waits, all others are served."""
    volume = shared_volume
    with Client(shared_cluster.first.uri(volume, tcp=True)) as greedy:
        greedy.socket.settimeout(2)
        try:
            for _ in range(20_000):
                greedy.send(0, 0, 1024 * 1024)
        except OSError:
            pass
        time.sleep(1)
        still_serves(shared_cluster, volume, mark=7)
        # 20,000 requests ask for 20 GiB of replies.
        assert shared_cluster.first.process.resident_bytes() < 2**30
