"""NVMe reservations of a shared volume, by two hosts at two nodes, and beside a host of iSCSI."""

import time

import pytest

from tools.harness import iscsi
from tools.harness.cluster import HOST
from tools.harness.nvme import (
    ACQUIRE,
    CLEAR,
    IGNORES_KEY,
    PREEMPT,
    PREEMPT_AND_ABORT,
    REGISTER,
    RELEASE,
    REPLACE,
    RESERVATION_CONFLICT,
    RESV_ACQUIRE,
    RESV_REGISTER,
    RESV_RELEASE,
    SUCCESS,
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
    Failed,
    controller,
    io_queue,
)
from tools.harness.process import free_port, wait_until

TARGET = "iqn.2026-01.io.azekura:vol1"
A, B, C = 0xA, 0xB, 0xC
# Dword 0 of the event: its type, and the log page that tells more.
RESERVATION_EVENT = 6 | 0x80 << 16
DATA = b"d" * 4096
CHUNK_BLOCKS = (4 << 20) // 512
CHUNKS = 16
# Of a command that waits for a node which stands still: that node's time to confirm, and the groups' for the fence.
FENCED_WITHIN_S = 40


@pytest.fixture
def shared(make_cluster):
    """Three nodes and a configuration that does not stand still with one of them; two have both doors, of two
    shards."""
    cluster = make_cluster(start=False, config="etcd", nodes=3, device_size="512MiB", node_options=["--devices", 2])
    cluster.addresses = [f"{HOST}:{free_port()}" for _ in range(2)]
    cluster.portals = [f"{HOST}:{free_port()}" for _ in range(2)]
    for node, address, portal in zip(cluster.nodes, cluster.addresses, cluster.portals, strict=False):
        node.options = ["--nvme", address, "--iscsi", portal, "--shards", 2]
    cluster.start()
    cluster.create_volume("vol1", "128MiB", shared=True)
    cluster.wait_healthy()
    return cluster


class Host:
    """A host's controller at a node, with one I/O queue."""

    def __init__(self, address, host_id):
        options = {"host_id": host_id, "name": f"nqn.2000-01.example:host{host_id}"}
        self.admin = controller(address, "vol1", **options)
        try:
            self.queue = io_queue(address, "vol1", self.admin, 1, **options)
        except (OSError, Failed):
            self.admin.close()
            raise
        self.queue.socket.settimeout(FENCED_WITHIN_S)

    def register(self, key):
        return self.queue.reserve(RESV_REGISTER, REGISTER, 0, key)

    def register_again(self, key):
        return self.queue.reserve(RESV_REGISTER, REPLACE | IGNORES_KEY, 0, key)

    def acquire(self, action, key, victim=0):
        return self.queue.reserve(RESV_ACQUIRE, action, key, victim)

    def release(self, action, key):
        return self.queue.reserve(RESV_RELEASE, action, key)

    def keys(self):
        return sorted(key for key, _, _ in self.queue.registrants()[1])

    def close(self):
        self.queue.close()
        self.admin.close()


def host(cluster, node, host_id=None):
    """A host's controller at the node of this number, counted from 0, once it can be had."""
    made = None

    def connects():
        nonlocal made
        try:
            made = Host(cluster.addresses[node], host_id or node + 1)
        except (OSError, Failed):
            return False
        return True

    wait_until(connects, 30, "the controller")
    return made


def reserved(cluster):
    """Two hosts that have registered, each at its node; the first one holds a reservation of registrants."""
    a, b = host(cluster, 0), host(cluster, 1)
    assert a.register(A) == b.register(B) == SUCCESS
    assert a.acquire(ACQUIRE, A) == SUCCESS
    return a, b


def test_a_namespace_says_that_it_can_be_reserved(shared):
    a = host(shared, 0)
    assert a.admin.identify(0x01)[520] & 1 << 5 and a.admin.identify(0x00, 1)[31] == 0xFF
    assert a.queue.registrants() == (0, [])


def test_who_is_preempted_at_another_node_does_not_write(shared):
    a, b = reserved(shared)
    assert a.queue.write_status(0, DATA) == b.queue.write_status(8, DATA) == SUCCESS
    held = (WRITE_EXCLUSIVE_REGISTRANTS_ONLY, [(A, True, bytes([1]) * 16), (B, False, bytes([2]) * 16)])
    assert b.queue.registrants() == held
    event = a.admin.request_event()
    assert b.acquire(PREEMPT, B, A) == SUCCESS
    assert b.queue.registrants() == (WRITE_EXCLUSIVE_REGISTRANTS_ONLY, [(B, True, bytes([2]) * 16)])
    assert a.queue.write_status(0, DATA) == RESERVATION_CONFLICT
    assert a.queue.read(0, 4096) == DATA, "it may read"
    assert a.admin.complete(event)[0] == RESERVATION_EVENT
    assert [a.admin.notification(), a.admin.notification(), b.admin.notification()] == [1, 0, 0]
    assert b.queue.write_status(0, b"b" * 4096) == SUCCESS
    assert a.register_again(A) == SUCCESS
    assert a.queue.write_status(0, DATA) == SUCCESS, "it has registered anew"
    assert a.acquire(PREEMPT_AND_ABORT, A, B) == SUCCESS
    assert b.queue.write_status(0, DATA) == RESERVATION_CONFLICT
    assert a.release(CLEAR, A) == SUCCESS
    assert b.queue.write_status(0, DATA) == SUCCESS and b.keys() == []


def test_a_host_is_one_registrant_at_all_nodes(shared):
    """What it has reserved by one controller, it holds by all others that have its identifier. It writes by one."""
    a, b = reserved(shared)
    other = host(shared, 1, host_id=1)
    assert b.register_again(B) == SUCCESS
    assert other.acquire(PREEMPT, A, B) == SUCCESS
    assert a.queue.write_status(0, DATA) == SUCCESS and other.queue.read(0, 4096) == DATA
    assert b.queue.write_status(0, DATA) == RESERVATION_CONFLICT
    assert other.queue.registrants()[1] == [(A, True, bytes([1]) * 16)]
    assert other.release(RELEASE, A) == SUCCESS
    assert b.queue.write_status(0, DATA) == SUCCESS


def test_reservations_outlast_a_restart_of_all_nodes(shared):
    a, b = reserved(shared)
    assert b.acquire(PREEMPT, B, A) == SUCCESS
    a.close()
    b.close()
    shared.kill_all()
    for node in shared.nodes:
        node.start()
    shared.wait_healthy()
    a, b = host(shared, 0), host(shared, 1)
    assert a.queue.write_status(0, DATA) == RESERVATION_CONFLICT
    assert a.queue.registrants() == (WRITE_EXCLUSIVE_REGISTRANTS_ONLY, [(B, True, bytes([2]) * 16)])
    assert b.queue.write_status(0, DATA) == SUCCESS
    assert b.release(RELEASE, B) == SUCCESS
    assert a.queue.write_status(0, DATA) == SUCCESS


def test_hosts_of_both_protocols_put_each_other_out(shared):
    a = host(shared, 0)
    with iscsi.Session(shared.portals[1], TARGET) as c:
        c.log_in()
        c.attentions()
        assert a.register(A) == SUCCESS
        assert c.reserve_out(iscsi.REGISTER, 0, C) == iscsi.GOOD
        assert a.acquire(ACQUIRE, A) == SUCCESS
        assert c.reservation() == (A, iscsi.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
        assert sorted(c.keys()) == a.keys() == [A, C]
        assert c.write_status(0, DATA) == iscsi.GOOD
        assert a.acquire(PREEMPT, A, C) == SUCCESS
        assert c.attentions() == 1, "REGISTRATIONS PREEMPTED"
        assert c.write_status(0, DATA) == iscsi.RESERVATION_CONFLICT
        assert c.reserve_out(iscsi.REGISTER, 0, C) == iscsi.GOOD
        assert c.reserve_out(iscsi.PREEMPT_AND_ABORT, C, A) == iscsi.GOOD
        assert a.queue.write_status(0, DATA) == RESERVATION_CONFLICT
        assert a.admin.notification() == 1
        kind, [(key, holds, name)] = a.queue.registrants()
        assert (kind, key, holds) == (WRITE_EXCLUSIVE_REGISTRANTS_ONLY, C, True)
        assert name not in (bytes(16), bytes([1]) * 16), "a name that no host has"
        assert c.write_status(0, b"c" * 4096) == iscsi.GOOD
    assert a.queue.read(0, 4096) == b"c" * 4096


def test_a_node_that_stands_still_writes_nothing_more_of_who_was_preempted(shared):
    """It neither hears of the preemption nor confirms it: its attachment ends, and its late writes are refused."""
    a, b = reserved(shared)
    b.queue.write(0, b"0" * 4096)
    process = shared.nodes[0].process
    process.pause()
    for chunk in range(CHUNKS):
        a.queue.send_write(chunk * CHUNK_BLOCKS, b"a" * 4096)
    started = time.monotonic()
    assert b.acquire(PREEMPT_AND_ABORT, B, A) == SUCCESS
    print(f"the preemption was answered after {time.monotonic() - started:.1f} s")
    for chunk in range(CHUNKS):
        b.queue.write(chunk * CHUNK_BLOCKS, b"b" * 4096)
    process.resume()
    for _ in range(5):
        for chunk in range(CHUNKS):
            assert b.queue.read(chunk * CHUNK_BLOCKS, 4096) == b"b" * 4096, chunk
        time.sleep(0.5)
    again = host(shared, 0)
    assert again.queue.write_status(0, DATA) == RESERVATION_CONFLICT
    assert b.queue.read(0, 4096) == b"b" * 4096
