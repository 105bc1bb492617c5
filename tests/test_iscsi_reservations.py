"""Persistent reservations of a shared volume, by two hosts at two nodes."""

import time

import pytest

from tools.harness.cluster import HOST
from tools.harness.iscsi import (
    BLOCK,
    BUSY,
    CLEAR,
    GOOD,
    PREEMPT,
    PREEMPT_AND_ABORT,
    REGISTER,
    REGISTER_AND_IGNORE,
    RELEASE,
    RESERVATION_CONFLICT,
    RESERVE,
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
    Session,
)
from tools.harness.nbd import Client, NbdError
from tools.harness.process import free_port, wait_until

TARGET = "iqn.2026-01.io.azekura:vol1"
A, B = 0xA, 0xB
DATA = b"d" * 4096
CHUNK_BLOCKS = (4 << 20) // BLOCK
CHUNKS = 32
ROUNDS = 10
# Of a command that waits for a node which stands still: that node's time to confirm, and the groups' for the fence.
FENCED_WITHIN_S = 40


@pytest.fixture
def shared(make_cluster):
    """Three nodes and a configuration that does not stand still with one of them; two have the door, of two shards."""
    cluster = make_cluster(start=False, config="etcd", nodes=3, device_size="512MiB", node_options=["--devices", 2])
    cluster.addresses = [f"{HOST}:{free_port()}" for _ in range(2)]
    for node, address in zip(cluster.nodes, cluster.addresses, strict=False):
        node.options = ["--iscsi", address, "--shards", 2]
    cluster.start()
    cluster.create_volume("vol1", "128MiB", shared=True)
    cluster.wait_healthy()
    return cluster


def host(cluster, number):
    """A host's session at the node of this number, counted from 0, once it can be had."""
    session = None

    def logs_in():
        nonlocal session
        try:
            session = Session(cluster.addresses[number], TARGET, name=f"iqn.2000-01.example:host{number}").log_in()
        except OSError:
            return False
        return True

    wait_until(logs_in, 30, "the login")
    session.attentions()
    return session


def reserved(cluster):
    """Two hosts that have registered, each at its node; the first one holds a reservation of registrants."""
    a, b = host(cluster, 0), host(cluster, 1)
    assert a.reserve_out(REGISTER, 0, A) == b.reserve_out(REGISTER, 0, B) == GOOD
    assert a.reserve_out(RESERVE, A) == GOOD
    return a, b


def outcome(session, itt, within_s=FENCED_WITHIN_S):
    session.socket.settimeout(within_s)
    return session.status_of(itt)[0]


def test_who_is_preempted_at_another_node_does_not_write(shared):
    a, b = reserved(shared)
    assert a.write_status(0, DATA) == b.write_status(8, DATA) == GOOD
    assert sorted(b.keys()) == [A, B] and b.reservation() == (A, WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    assert b.reserve_out(PREEMPT, B, A) == GOOD
    assert b.keys() == [B] and b.reservation() == (B, WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    assert a.attentions() == 1, "REGISTRATIONS PREEMPTED"
    assert a.write_status(0, DATA) == RESERVATION_CONFLICT
    assert a.read(0, 8) == DATA, "it may read"
    assert b.write_status(0, b"b" * 4096) == GOOD
    assert a.reserve_out(REGISTER_AND_IGNORE, 0, A) == GOOD
    assert a.write_status(0, DATA) == GOOD, "it has registered anew"
    assert a.reserve_out(PREEMPT_AND_ABORT, A, B) == GOOD
    assert b.attentions() == 1 and b.write_status(0, DATA) == RESERVATION_CONFLICT
    assert a.reserve_out(CLEAR, A) == GOOD
    assert b.write_status(0, DATA) == GOOD and b.keys() == []


def test_who_is_preempted_hears_of_that_before_the_answer(shared):
    """Also where nobody holds a reservation, and so nobody may do less than before: the next command tells it."""
    a, b = host(shared, 0), host(shared, 1)
    for take_away in ((PREEMPT, B, A), (CLEAR, B)) * ROUNDS:
        assert a.reserve_out(REGISTER_AND_IGNORE, 0, A) == b.reserve_out(REGISTER_AND_IGNORE, 0, B) == GOOD
        assert b.reserve_out(*take_away) == GOOD
        assert a.attentions() == 1, take_away


def test_reservations_outlast_a_restart_of_all_nodes(shared):
    a, b = reserved(shared)
    assert b.reserve_out(PREEMPT, B, A) == GOOD
    for session in (a, b):
        session.socket.close()
    shared.kill_all()
    for node in shared.nodes:
        node.start()
    shared.wait_healthy()
    a, b = host(shared, 0), host(shared, 1)
    assert a.write_status(0, DATA) == RESERVATION_CONFLICT
    assert a.keys() == [B] and b.reservation() == (B, WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    assert b.write_status(0, DATA) == GOOD
    assert b.reserve_out(RELEASE, B) == GOOD
    assert a.write_status(0, DATA) == GOOD


def test_clients_without_a_name_may_do_what_is_left_to_others(shared):
    a, _ = reserved(shared)
    with Client(shared.nodes[2].uri("vol1")) as client:
        assert client.read(0, 4096) == bytes(4096)
        with pytest.raises(NbdError):
            client.write(0, DATA)
        assert a.reserve_out(RELEASE, A) == GOOD
        client.write(0, DATA)


def test_a_node_that_stands_still_writes_nothing_more_of_who_was_preempted(shared):
    """It neither hears of the preemption nor confirms it: its attachment ends, and its late writes are refused."""
    a, b = reserved(shared)
    b.write(0, b"0" * 4096)
    process = shared.nodes[0].process
    process.pause()
    for chunk in range(CHUNKS):
        a.send_write(chunk * CHUNK_BLOCKS, b"a" * 4096)
    started = time.monotonic()
    assert outcome(b, b.send_reserve_out(PREEMPT_AND_ABORT, B, A)) == GOOD
    print(f"the preemption was answered after {time.monotonic() - started:.1f} s")
    for chunk in range(CHUNKS):
        b.write(chunk * CHUNK_BLOCKS, b"b" * 4096)
    process.resume()
    for _ in range(5):
        for chunk in range(CHUNKS):
            assert b.read(chunk * CHUNK_BLOCKS, 8) == b"b" * 4096, chunk
        time.sleep(0.5)
    again = host(shared, 0)
    assert again.write_status(0, DATA) == RESERVATION_CONFLICT
    assert b.read(0, 8) == b"b" * 4096


def test_a_node_that_has_ended_is_not_waited_for(shared):
    a, b = reserved(shared)
    a.write(0, DATA)
    shared.nodes[0].kill()
    itt = b.send_reserve_out(PREEMPT, B, A)
    status = outcome(b, itt)
    assert status in (GOOD, BUSY)
    if status == BUSY:
        wait_until(lambda: b.keys() == [B], FENCED_WITHIN_S, "the host to be put out")
    b.write(0, b"b" * 4096)
    shared.nodes[0].start()
    again = host(shared, 0)
    assert again.write_status(0, DATA) == RESERVATION_CONFLICT
