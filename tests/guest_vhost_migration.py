"""A virtual machine of QEMU that moves from node to node with its disk, a vhost-user socket of each, while fio writes.

Not part of the other tests: `./dev guest` runs it.
"""

import os
import shutil
import time
from pathlib import Path

import pytest

from tools.harness.guest import Guest
from tools.harness.process import wait_until

MIB = 2**20
KERNEL = os.environ.get("AZEKURA_GUEST_KERNEL", "")
FIO = "fio --name=job --ioengine=libaio --direct=1 --thread --minimal --eta=never --output=/tmp/fio --filename=/dev/vda"
# A rate in bytes: one in requests counts each as one of 512 bytes, and the job would take twenty minutes.
VERIFY = "--rw=randwrite --bssplit=512/10:4k/60:16k/20:64k/10 --size=64M --iodepth=16 --rate=,1200k --verify=crc32c"
MOVED_WITHIN_S = 180
DONE_WITHIN_S = 300

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_GUEST_KERNEL names no unpacked kernel (./dev guest does)")


@pytest.fixture(scope="module")
def cluster(module_cluster):
    """Three nodes of two shards; n1 and n2 have a socket for the volume."""
    cluster = module_cluster(start=False, config="etcd")
    cluster.sockets = [cluster.folder / f"{node.name}.sock" for node in cluster.nodes[:2]]
    for node, path in zip(cluster.nodes, cluster.sockets, strict=False):
        node.options = ["--vhost-socket", f"vol1={path}", "--shards", "2", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "128MiB")
    return cluster


@pytest.fixture(scope="module")
def machines(cluster, tmp_path_factory):
    """Makes a machine at a node, which boots, or waits for another one to move there."""
    made = []

    def machine(node, waits=True, queues=2):
        path = cluster.sockets[node]
        disk = ["-chardev", f"socket,id=disk,path={path},reconnect=1"]
        disk += ["-device", f"vhost-user-blk-pci,chardev=disk,num-queues={queues}"]
        folder = tmp_path_factory.mktemp("guest")
        made.append(Guest(Path(KERNEL), folder, disk, {shutil.which("fio"): "/usr/bin/fio"}, waits=waits))
        return made[-1]

    yield machine
    for one in made:
        if one.process.alive:
            one.stop()


def attached_to(cluster):
    shown = cluster.json("volume", "show", "vol1", node=cluster.nodes[2])
    return [entry["node_name"] for entry in shown["attachments"]]


def begin(guest):
    """A job that writes for a minute or so, and verifies then."""
    guest.run("rm -f /tmp/done")
    guest.run(f"({FIO} {VERIFY} --do_verify=1 && echo fine > /tmp/done || echo bad > /tmp/done) & true")


def end(guest):
    guest.run("while [ ! -f /tmp/done ]; do sleep 1; done", within_s=DONE_WITHIN_S)
    assert guest.run("cat /tmp/done") == "fine", guest.run("cat /tmp/fio")


def move(source, target):
    source.move(target)
    assert source.moved(MOVED_WITHIN_S) == "completed"
    wait_until(lambda: target.qmp("query-status")["status"] == "running", 30, "the machine's going on")


def test_a_machine_moves_with_its_disk_and_back_and_stays_where_it_can_not(cluster, machines):
    """One machine after the other, as each of them takes half a minute to boot."""
    first = machines(0, waits=False)
    assert attached_to(cluster) == ["n1"]
    begin(first)
    time.sleep(3)
    # The machine that waits is there while the other one works, which has the volume all along.
    second = machines(1)
    time.sleep(3)
    assert attached_to(cluster) == ["n1"]
    move(first, second)
    wait_until(lambda: attached_to(cluster) == ["n2"], 10, "n2's having the volume")
    # What was left there may end when it likes.
    time.sleep(2)
    first.stop()
    third = machines(0)
    move(second, third)
    wait_until(lambda: attached_to(cluster) == ["n1"], 10, "n1's having the volume")
    second.stop()
    end(third)

    begin(third)
    # A move that is cancelled on its way.
    other = machines(1)
    third.qmp("migrate-set-parameters", max_bandwidth=2**20)
    third.qmp("migrate", uri=other.incoming)
    time.sleep(3)
    assert third.qmp("query-migrate")["status"] == "active"
    third.qmp("migrate_cancel")
    assert third.moved(60) == "cancelled"
    other.stop()
    assert attached_to(cluster) == ["n1"]
    # And one that fails when the machine stands still already: the other one has another disk.
    unlike = machines(1, queues=1)
    third.move(unlike)
    assert third.moved(MOVED_WITHIN_S) == "failed"
    wait_until(lambda: third.qmp("query-status")["status"] == "running", 30, "the machine's going on where it was")
    end(third)
    assert attached_to(cluster) == ["n1"]
    # What was written is what is read by the next machine.
    last = machines(1)
    move(third, last)
    third.stop()
    last.run(f"{FIO} {VERIFY} --verify_only", within_s=DONE_WITHIN_S)
    last.run("dd if=/dev/vda of=/dev/null bs=1M iflag=direct 2>/dev/null", within_s=120)
