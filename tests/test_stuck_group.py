"""A storage class that is lost for a while: its clients wait, or get an error, and nobody else notices."""

import errno
import time

import pytest

from tools.harness.nbd import CMD_READ, CMD_WRITE, Client, NbdError
from tools.harness.process import wait_until

pytestmark = pytest.mark.alone

BLOCK = 4096
CHUNK = 4 << 20
CHUNKS = 64
DEPTH = 32
MEASURED_S = 3
# The rate of the others is hardly changed; a machine that does much else needs several looks.
RATIO_MIN, LOOKS = 0.5, 4


@pytest.fixture
def make_solo(make_cluster):
    """A function that makes the volumes `solo`, of a class with one copy, and `vol1`; n1 serves, n3 is to die."""

    def make(io_timeout):
        cluster = make_cluster()
        cluster.create_volume()
        cluster.cli("class", "create", "one", "--copies", 1, "--io-timeout", io_timeout)
        cluster.cli("volume", "create", "solo", CHUNKS * CHUNK, "--class", "one")
        cluster.wait_healthy()
        return cluster

    return make


def write_everywhere(client):
    """Sends a write to each chunk; gives the cookies."""
    return {client.send(CMD_WRITE, chunk * CHUNK, data=b"a" * BLOCK): chunk for chunk in range(CHUNKS)}


def answered(client, asked, within_s):
    """Takes answers until none has come for so long: (chunks that were written, those with errors by number)."""
    done, failed = set(), {}
    client.socket.settimeout(within_s)
    while len(done) + len(failed) < len(asked):
        try:
            cookie, error, _ = client.receive()
        except TimeoutError:
            break
        if error:
            failed[asked[cookie]] = error
        else:
            done.add(asked[cookie])
    client.socket.settimeout(60)
    return done, failed


def rate(client, seconds=MEASURED_S):
    """Writes a second at a depth of 32."""
    count, until = 0, time.monotonic() + seconds
    for n in range(DEPTH):
        client.send(CMD_WRITE, n * CHUNK, data=b"b" * BLOCK)
    while time.monotonic() < until:
        _, error, _ = client.receive()
        assert error == 0
        count += 1
        client.send(CMD_WRITE, count % 256 * CHUNK, data=b"b" * BLOCK)
    for _ in range(DEPTH):
        assert client.receive()[1] == 0
    return count / seconds


def test_a_lost_class_holds_up_no_other(make_solo):
    """Clients of another class keep their rate; what waits is done when the node is back."""
    cluster = make_solo("never")
    gateway, lost = cluster.nodes[0], cluster.nodes[2]
    with Client(gateway.uri("vol1")) as healthy, Client(gateway.uri("solo")) as waiting:
        done, failed = answered(waiting, write_everywhere(waiting), 60)
        assert (len(done), failed) == (CHUNKS, {})
        lost.kill()
        rate(healthy, 5)  # Its groups find other primaries.
        before = rate(healthy)
        asked = {}
        for _ in range(8):
            asked |= write_everywhere(waiting)
        done, failed = answered(waiting, asked, 3)
        assert failed == {} and 0 < len(asked) - len(done), "some wait for the node that is gone"
        ratios = []
        while len(ratios) < LOOKS and not any(ratio >= RATIO_MIN for ratio in ratios):
            ratios.append(rate(healthy) / before)
        print(f"rate while a class waits: {ratios} of what it was, {before:.0f} writes a second")
        assert max(ratios) >= RATIO_MIN, ratios
        # What is on other nodes can be read and written, through the same gateway.
        alive = min(done)
        assert waiting.send(CMD_READ, alive * CHUNK, BLOCK) not in asked
        assert waiting.receive()[1:] == (0, b"a" * BLOCK)
        lost.start()
        done_later, failed = answered(waiting, asked, 60) if len(done) < len(asked) else (set(), {})
        assert failed == {} and done | done_later == set(range(CHUNKS))
    cluster.wait_healthy()


def test_a_request_on_a_lost_class_fails_after_its_time(make_solo):
    """With EIO, and the volume goes on as soon as its node is back. The time can be changed while it waits."""
    cluster = make_solo("never")
    gateway, lost = cluster.nodes[0], cluster.nodes[2]
    with Client(gateway.uri("solo")) as client:
        done, failed = answered(client, write_everywhere(client), 60)
        assert (len(done), failed) == (CHUNKS, {})
        lost.kill()
        began = time.monotonic()
        asked = write_everywhere(client)
        done, failed = answered(client, asked, 2)
        assert not failed and len(done) < CHUNKS
        assert cluster.json("class", "set", "one", "--io-timeout", "3s")["io_timeout_seconds"] == 3
        assert cluster.json("class", "show", "one")["io_timeout_seconds"] == 3
        waiting = {cookie: chunk for cookie, chunk in asked.items() if chunk not in done}
        done, failed = answered(client, waiting, 60)
        took = time.monotonic() - began
        assert failed and set(failed.values()) == {errno.EIO} and len(done) + len(failed) == len(waiting)
        assert took >= 2, f"{took:.1f} s"
        gone = min(failed)
        with pytest.raises(NbdError):
            client.read(gone * CHUNK, BLOCK)
        lost.start()

        def written():
            try:
                client.write(gone * CHUNK, b"c" * BLOCK)
            except NbdError:
                return False
            return True

        wait_until(written, 60, "a write to what was lost")
        assert client.read(gone * CHUNK, BLOCK) == b"c" * BLOCK
        # What failed before does not come after it.
        time.sleep(2)
        assert client.read(gone * CHUNK, BLOCK) == b"c" * BLOCK
    cluster.wait_healthy()
