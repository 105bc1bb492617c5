"""Compare-and-write is one step for hosts at all nodes, by iSCSI and by NVMe, also while nodes are killed."""

import threading
import time

import pytest

from tools.harness import nvme
from tools.harness.cluster import HOST
from tools.harness.iscsi import BLOCK, IscsiError, Session
from tools.harness.process import free_port, wait_until

TARGET = "iqn.2026-01.io.azekura:"
CHUNK_BLOCKS = (4 << 20) // BLOCK
COUNTERS = [0, 1, 8, CHUNK_BLOCKS - 1, CHUNK_BLOCKS, 5 * CHUNK_BLOCKS + 9]
HOSTS = 4


@pytest.fixture(scope="module")
def cluster(module_cluster):
    """Three nodes with the door, and two shared volumes, of which one is encrypted."""
    cluster = module_cluster(start=False, config="etcd", nodes=3)
    key = cluster.folder / "key"
    key.write_text(f"1 {'7' * 64}\n")
    key.chmod(0o600)
    cluster.addresses = [f"{HOST}:{free_port()}" for _ in cluster.nodes]
    cluster.portals = [f"{HOST}:{free_port()}" for _ in cluster.nodes]
    for node, address, portal in zip(cluster.nodes, cluster.addresses, cluster.portals, strict=True):
        node.options = ["--iscsi", address, "--nvme", portal, "--key-file", key]
    cluster.start()
    cluster.create_volume("plain", "64MiB", shared=True)
    cluster.cli("volume", "create", "sealed", "64MiB", "--shared", "--encrypt")
    cluster.wait_healthy()
    for address in cluster.addresses:
        wait_until(lambda address=address: log_in(address, "plain", 99), 30, "the door to compare")
    return cluster


def log_in(address, volume, isid):
    """A session, or `None` where nobody lets it in."""
    session = None
    try:
        name = f"iqn.2000-01.example:host{isid}"
        session = Session(address, TARGET + volume, isid=isid, name=name, within_s=60).log_in()
        session.read(0, 1)
        return session
    except (OSError, IscsiError, AssertionError):
        if session:
            session.socket.close()
        return None


class NvmeHost:
    """The same by NVMe: a controller with one queue."""

    def __init__(self, address, volume, number):
        name = f"nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-{number:012}"
        self.admin = nvme.controller(address, volume, host_id=number, name=name)
        self.queue = nvme.io_queue(address, volume, self.admin, 1, host_id=number, name=name)
        self.compare_and_write, self.socket = self.queue.compare_and_write, self

    def read(self, block, count):
        return self.queue.read(block, count * BLOCK)

    def close(self):
        self.queue.close()
        self.admin.close()


def connect(address, volume, number):
    """A controller, or `None` where there is none now."""
    try:
        return NvmeHost(address, volume, number)
    except (OSError, nvme.Failed, AssertionError):
        return None


def number(block):
    return int.from_bytes(block[:8])


class Host(threading.Thread):
    """Raises the counters by one, one after the other, as long as it may; by another node when one is lost."""

    def __init__(self, log_in, addresses, volume, isid):
        super().__init__()
        self.log_in, self.addresses, self.volume, self.isid = log_in, addresses, volume, isid
        self.raised, self.perhaps, self.lost, self.is_over, self.error = 0, 0, 0, False, None

    def run(self):
        session, at, turn = None, self.isid, 0
        try:
            while not self.is_over:
                if session is None:
                    at += 1
                    session = self.log_in(self.addresses[at % len(self.addresses)], self.volume, self.isid)
                    continue
                turn += 1
                if not self.raise_one(session, COUNTERS[turn % len(COUNTERS)]):
                    session.socket.close()
                    session = None
        except BaseException as error:
            self.error = error
            raise

    def raise_one(self, session, block):
        """False: the session is over."""
        is_sent = False
        try:
            while True:
                held = session.read(block, 1)
                is_sent = True
                new = (number(held) + 1).to_bytes(8) + self.isid.to_bytes(8) * 63
                if session.compare_and_write(block, held, new):
                    self.raised += 1
                    return True
                self.lost += 1
                is_sent = False
        except (OSError, IscsiError, nvme.Failed):
            self.perhaps += is_sent
            return False


def counted(address, volume):
    session = wait_until(lambda: log_in(address, volume, 98), 60, "the door")
    with session:
        return sum(number(session.read(block, 1)) for block in COUNTERS)


@pytest.mark.parametrize("volume", ["plain", "sealed"])
def test_counters_that_hosts_raise_at_all_nodes_are_right(cluster, volume):
    hosts = [Host(log_in, cluster.addresses, volume, isid) for isid in range(1, HOSTS)]
    hosts.append(Host(connect, cluster.portals, volume, HOSTS))
    for host in hosts:
        host.start()
    try:
        for node in cluster.nodes[1:]:
            wait_until(lambda: sum(host.raised for host in hosts) > 50, 60, "counters to be raised")
            node.kill()
            time.sleep(3)
            before = sum(host.raised for host in hosts)
            wait_until(lambda before=before: sum(h.raised for h in hosts) > before + 50, 60, "counters to be raised")
            node.start()
            cluster.wait_healthy()
    finally:
        for host in hosts:
            host.is_over = True
        for host in hosts:
            host.join(120)
    assert not any(host.is_alive() or host.error for host in hosts)
    assert all(host.raised > 10 for host in hosts), [(host.raised, host.lost, host.perhaps) for host in hosts]
    raised, perhaps = sum(host.raised for host in hosts), sum(host.perhaps for host in hosts)
    assert sum(host.lost for host in hosts) > 0, "nobody was in anybody's way"
    found = counted(cluster.addresses[0], volume)
    assert raised <= found <= raised + perhaps, (raised, perhaps)
