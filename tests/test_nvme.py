"""The NVMe/TCP door of real nodes, through a host of a few lines. Linux's own host: tests/guest_nvme.py."""

import os
import threading

import pytest

from tools.harness.cluster import HOST
from tools.harness.nvme import CC, CSTS, SUBSYSTEM, Failed, Queue, controller, io_queue, listed
from tools.harness.process import free_port, wait_until

MIB = 2**20


@pytest.fixture(scope="module")
def door(module_cluster):
    """A node of three shards with the door, and volumes behind it."""
    cluster = module_cluster(start=False, nodes=1)
    cluster.address, cluster.discovery = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
    options = ["--nvme", cluster.address, "--nvme-discovery", cluster.discovery]
    cluster.nodes[0].options = [*options, "--shards", "3", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "64MiB", copies=1)
    cluster.create_volume("vol2", "64MiB", copies=1)
    wait_until(lambda: len(listed(cluster.discovery)) == 2, 10, "the volumes to be listed")
    return cluster


def test_a_discovery_lists_volumes_with_the_portal(door):
    port = door.address.rsplit(":", 1)[1]
    for address in [door.address, door.discovery]:
        assert sorted(listed(address)) == [(SUBSYSTEM + name, HOST, port) for name in ["vol1", "vol2"]]


def test_a_volume_says_where_it_is(door):
    shown = door.json("volume", "show", "vol1")
    uris = [endpoint["uri"] for endpoint in shown["endpoints"] if endpoint["protocol"] == "nvme"]
    assert f"nvme+tcp://{door.address}/{SUBSYSTEM}vol1" in uris


def test_what_is_written_on_one_queue_is_read_on_all(door):
    admin = controller(door.address, "vol1")
    queues = [io_queue(door.address, "vol1", admin, number) for number in range(1, 9)]
    for number, queue in enumerate(queues):
        for size in [512, 4096, 8192, MIB]:
            data = os.urandom(size)
            queue.write(number * 8192, data)
            assert all(other.read(number * 8192, size) == data for other in queues)
    names = admin.identify(0x03, 1)
    assert names[:2] == b"\x02\x10" and names[20:22] == b"\x03\x10"
    [queue.close() for queue in [admin, *queues]]


def test_queues_end_with_their_controller(door):
    admin = controller(door.address, "vol1")
    queues = [io_queue(door.address, "vol1", admin, number) for number in range(1, 5)]
    admin.close()
    for queue in queues:
        # Nothing was asked for, and so nothing comes until the end.
        with pytest.raises(ConnectionError):
            queue.receive()
    with pytest.raises(Failed):
        io_queue(door.address, "vol1", admin, 5)


def test_a_reset_ends_queues_and_lets_them_connect_again(door):
    admin = controller(door.address, "vol1")
    queues = [io_queue(door.address, "vol1", admin, number) for number in range(1, 5)]
    admin.set_property(CC, 0)
    wait_until(lambda: admin.get_property(CSTS) == 0, 20, "the reset to be over")
    for queue in queues:
        with pytest.raises((ConnectionError, OSError)):
            queue.read(0, 512)
    admin.set_property(CC, 0x0046_0001)
    again = io_queue(door.address, "vol1", admin, 1)
    again.write(0, bytes(512))
    admin.close()


def test_a_host_that_is_silent_is_taken_for_gone(door):
    alive = controller(door.address, "vol2", keep_alive_ms=1000)
    silent = controller(door.address, "vol2", keep_alive_ms=1000, host_id=2)
    queue, other = io_queue(door.address, "vol2", alive, 1), io_queue(door.address, "vol2", silent, 1, host_id=2)
    stops = threading.Event()

    def lives():
        while not stops.wait(0.1):
            queue.read(0, 512)

    thread = threading.Thread(target=lives)
    thread.start()
    try:
        # Nothing is sent, and so nothing comes until the end.
        with pytest.raises(ConnectionError):
            silent.receive()
        with pytest.raises(ConnectionError):
            other.receive()
    finally:
        stops.set()
        thread.join()
    # The admin queue itself has been as silent.
    assert alive.get_property(CSTS) == 1
    [one.close() for one in [alive, queue, silent, other]]


def test_a_host_that_comes_again_has_its_volume(door):
    for number in range(20):
        admin = controller(door.address, "vol1")
        queue = io_queue(door.address, "vol1", admin, 1)
        data = bytes([number]) * 8192
        queue.write(0, data)
        # The end of both comes to different shards, in any order.
        first, second = (admin, queue) if number % 2 else (queue, admin)
        first.close()
        second.close()
        admin = controller(door.address, "vol1")
        queue = io_queue(door.address, "vol1", admin, 1)
        assert queue.read(0, 8192) == data
        queue.close()
        admin.close()


def test_what_is_refused(door):
    for subsystem in [SUBSYSTEM + "none", "nqn.2000-01.example:other"]:
        with pytest.raises(Failed) as refused:
            Queue(door.address, subsystem)
        assert refused.value.status == 0x182
    admin = controller(door.address, "vol1")
    with pytest.raises(Failed) as refused:
        io_queue(door.address, "vol1", admin, 1, host_id=7)
    assert refused.value.status == 0x184
    queue = io_queue(door.address, "vol1", admin, 1)
    with pytest.raises(Failed) as refused:
        queue.read(64 * MIB // 512, 512)
    assert refused.value.status == 0x080
    queue.close()
    admin.close()
