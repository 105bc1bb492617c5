"""iSCSI sessions that are reinstated: a host whose connection broke, or that has given up on it, logs in anew under the
same name, while writes of the earlier session are under way at a node that does not answer."""

import os
import time

import pytest

from tools.harness.cluster import HOST
from tools.harness.iscsi import BLOCK, Session
from tools.harness.process import free_port

CHUNK_BLOCKS = (4 << 20) // BLOCK
CHUNKS = 64
WRITE_BYTES = 4096
TARGET = "iqn.2026-01.io.azekura:solo"
NO_SESSION = 0x020A
# A login that is answered at all on an idle machine is answered within milliseconds.
SILENCE_S = 3


@pytest.fixture
def hosts(make_cluster):
    """n1 serves the volume `solo`, which has one copy, from four shards; and the node that has some of its chunks."""
    cluster = make_cluster(start=False, nodes=2, device_size="512MiB", node_options=["--devices", 4])
    address = f"{HOST}:{free_port()}"
    cluster.nodes[0].options = ["--iscsi", address, "--shards", 4]
    cluster.start()
    cluster.cli("class", "create", "one", "--copies", 1, "--io-timeout", "never")
    cluster.cli("volume", "create", "solo", CHUNKS * CHUNK_BLOCKS * BLOCK, "--class", "one")
    cluster.wait_healthy()
    return address, cluster.nodes[1].process


def write_everywhere(session, byte):
    """Sends a write to each chunk; gives the chunks by their tasks."""
    return {session.send_write(chunk * CHUNK_BLOCKS, byte * WRITE_BYTES): chunk for chunk in range(CHUNKS)}


def stuck(session, asked):
    """Takes answers until none has come for a while: the chunks that were not written."""
    waiting = dict(asked)
    session.socket.settimeout(SILENCE_S)
    while waiting:
        try:
            itt, status, _ = session.answer()
        except TimeoutError:
            break
        assert status == 0
        del waiting[itt]
    return sorted(waiting.values())


def with_writes_under_way(address, paused):
    """A session some of whose writes are under way at a node that was paused, and the chunks of these."""
    session = Session(address, TARGET).log_in()
    assert not stuck(session, write_everywhere(session, b"0"))
    paused.pause()
    chunks = stuck(session, write_everywhere(session, b"1"))
    assert 0 < len(chunks) <= CHUNKS
    return session, chunks


def check_new_writes_stay(session, chunks):
    for chunk in chunks:
        session.write(chunk * CHUNK_BLOCKS, b"2" * WRITE_BYTES)
    for _ in range(3):
        for chunk in chunks:
            assert session.read(chunk * CHUNK_BLOCKS, WRITE_BYTES // BLOCK) == b"2" * WRITE_BYTES, chunk
        time.sleep(0.5)


def test_a_session_is_reinstated_when_the_writes_of_the_earlier_one_have_ended(hosts):
    address, other = hosts
    earlier, chunks = with_writes_under_way(address, other)
    with Session(address, TARGET) as later:
        assert later.login_status(SILENCE_S) is None, "the login was answered while writes were under way"
        assert earlier.is_closed(SILENCE_S)
        other.resume()
        assert later.login_status(60) == 0
        check_new_writes_stay(later, chunks)


def test_of_logins_that_come_one_after_the_other_the_last_one_has_the_session(hosts):
    """On whatever shards they are: the kernel spreads connections over them."""
    address, other = hosts
    earlier, chunks = with_writes_under_way(address, other)
    for number in range(12):
        later = Session(address, TARGET)
        assert earlier.is_closed(10), f"login {number} does not end the one before"
        earlier = later
    assert later.login_status(SILENCE_S) is None
    with Session(address, TARGET, isid=2) as beside:
        assert beside.login_status() == 0, "a session of another name does not wait"
        other.resume()
        assert later.login_status(60) == 0
        check_new_writes_stay(later, chunks)
        assert len(beside.read(0, 8)) == 8 * BLOCK, "nor does it end"


def test_idle_sessions_are_reinstated_again_and_again(hosts):
    """Sessions that have nothing under way, and one that was logged in and does not read."""
    address, _ = hosts
    earlier = Session(address, TARGET).log_in()
    for number in range(50):
        later = Session(address, TARGET).log_in()
        assert earlier.is_closed(10), number
        byte = os.urandom(1)
        later.write(0, byte * WRITE_BYTES)
        assert later.read(0, 8) == byte * WRITE_BYTES
        earlier = later


def test_a_session_that_is_not_there_is_refused(hosts):
    address, _ = hosts
    with Session(address, TARGET) as standing:
        assert standing.login_status() == 0
        assert standing.tsih != 0
        for isid, tsih in [(2, standing.tsih), (1, standing.tsih ^ 0x5555)]:
            with Session(address, TARGET, isid=isid, tsih=tsih) as other:
                assert other.login_status() == NO_SESSION
        assert len(standing.read(0, 1)) == BLOCK, "it has not noticed"
