"""The relay itself: what one end does reaches the other."""

import socket
import threading

import pytest

from tools.harness.cluster import HOST
from tools.harness.process import free_port
from tools.harness.relay import Relay


@pytest.fixture
def listener():
    with socket.create_server((HOST, free_port())) as server:
        server.settimeout(10)
        yield server


def ends(listener, change=None):
    """A client and a server with a relay between them."""
    relay = Relay(listener.getsockname()[1], change)
    client = socket.create_connection((HOST, relay.port), timeout=10)
    server, _ = listener.accept()
    server.settimeout(10)
    return relay, client, server


def test_each_end_hears_the_other(listener):
    relay, client, server = ends(listener, lambda data, _client: data.upper())
    client.sendall(b"ping")
    assert server.recv(100) == b"PING"
    server.sendall(b"pong")
    assert client.recv(100) == b"pong"
    assert relay.kept == b"pingpong"
    relay.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, relay.port), timeout=10)


@pytest.mark.parametrize("first", ["client", "server"])
def test_an_end_that_waits_is_told_when_the_other_is_gone(listener, first):
    _, client, server = ends(listener)
    gone, waiting = (client, server) if first == "client" else (server, client)
    # The other thread of the relay is in `recv` on the waiting end by then, or gets there: both must do.
    waiting.sendall(b"x")
    assert gone.recv(100) == b"x"
    told = []
    reader = threading.Thread(target=lambda: told.append(waiting.recv(100)), daemon=True)
    reader.start()
    gone.close()
    reader.join(10)
    assert told == [b""]
