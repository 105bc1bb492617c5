"""The vhost-user door as QEMU and Linux's virtio_blk see it: Debian's kernel in a virtual machine whose disks are
volumes. Not part of the other tests: `./dev guest` runs it."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tools.harness.guest import Guest
from tools.harness.process import wait_until

MIB = 2**20
KERNEL = os.environ.get("AZEKURA_GUEST_KERNEL", "")
FIO = "fio --name=job --ioengine=libaio --direct=1 --thread --minimal --output=/tmp/fio"

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_GUEST_KERNEL names no unpacked kernel (./dev guest does)")


@pytest.fixture(scope="module")
def node(module_cluster):
    """A node of two shards with sockets for a volume, and for a snapshot of it."""
    cluster = module_cluster(start=False, nodes=1)
    cluster.sockets = {name: cluster.folder / f"{name}.sock" for name in ["vol1", "vol1@empty"]}
    options = [word for name, path in cluster.sockets.items() for word in ["--vhost-socket", f"{name}={path}"]]
    cluster.nodes[0].options = [*options, "--shards", "2", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "256MiB", copies=1)
    cluster.cli("snapshot", "create", "vol1@empty")
    return cluster


@pytest.fixture(scope="module")
def guest(node, tmp_path_factory):
    started = time.monotonic()
    options = []
    for number, path in enumerate(node.sockets.values()):
        options += ["-chardev", f"socket,id=disk{number},path={path},reconnect=1"]
        options += ["-device", f"vhost-user-blk-pci,chardev=disk{number},num-queues=2"]
    machine = Guest(Path(KERNEL), tmp_path_factory.mktemp("guest"), options, {shutil.which("fio"): "/usr/bin/fio"})
    print(f"the guest is up after {time.monotonic() - started:.1f} s")
    yield machine
    machine.stop()


def test_what_the_guest_sees(guest):
    queue = "/sys/block/vda/queue"
    assert guest.run("cat /sys/block/vda/size") == str(256 * MIB // 512)
    assert guest.run(f"cat {queue}/logical_block_size {queue}/physical_block_size").split() == ["512", "4096"]
    # Whatever is answered is durable.
    assert guest.run(f"cat {queue}/write_cache") == "write through"
    assert int(guest.run(f"cat {queue}/discard_max_bytes")) == int(guest.run(f"cat {queue}/write_zeroes_max_bytes")) > 0
    assert guest.run("ls /sys/block/vda/mq").split() == ["0", "1"]
    assert len(guest.run("cat /sys/block/vda/serial")) == 16
    assert guest.run("cat /sys/block/vda/ro /sys/block/vdb/ro").split() == ["0", "1"]
    assert guest.run("dd if=/dev/vdb bs=1M count=8 iflag=direct 2>/dev/null | tr -d '\\0' | wc -c") == "0"
    guest.run("dd if=/dev/zero of=/dev/vdb bs=4k count=1 oflag=direct", fails=True)


def test_a_file_system(guest):
    guest.run("mkfs.ext4 -q -F /dev/vda", within_s=120)
    guest.run("mount /dev/vda /mnt")
    guest.run("dd if=/dev/urandom of=/tmp/a bs=64k count=512 2>/dev/null; cp /tmp/a /mnt/a; cp /bin/busybox /mnt/b")
    guest.run("cd /mnt && sha256sum a b > sums && sync; cd /")
    guest.run("umount /mnt")
    guest.run("e2fsck -f -n /dev/vda", within_s=120)
    guest.run("echo 3 > /proc/sys/vm/drop_caches")
    guest.run("mount /dev/vda /mnt && cd /mnt && sha256sum -c sums; cd /")
    guest.run("rm /mnt/a; sync; fstrim /mnt; umount /mnt")


def test_fio_finds_what_it_has_written(guest):
    sizes = "--bssplit=512/20:4k/40:16k/20:128k/10:1m/10 --size=64M --iodepth=32 --norandommap=0"
    guest.run(f"{FIO} --filename=/dev/vda --rw=randwrite --verify=crc32c --do_verify=1 {sizes}", within_s=300)


def test_discards_read_as_zeros(guest):
    guest.run("dd if=/dev/urandom of=/dev/vda bs=1M count=8 oflag=direct 2>/dev/null")
    guest.run("blkdiscard -o 1048576 -l 2097152 /dev/vda")
    read = "dd if=/dev/vda bs=1M skip=1 count=2 iflag=direct 2>/dev/null"
    assert guest.run(f"{read} | tr -d '\\0' | wc -c") == "0"


def test_a_volume_that_grows_is_noticed(node, guest):
    """The node tells QEMU, and QEMU the guest, whose disk is in use meanwhile."""
    assert guest.run("cat /sys/block/vda/size") == str(256 * MIB // 512)
    guest.run("mkfs.ext4 -q -F /dev/vda 64M && mount /dev/vda /mnt", within_s=120)
    node.cli("volume", "resize", "vol1", "320MiB")
    wait_until(lambda: guest.run("cat /sys/block/vda/size") == str(320 * MIB // 512), 30, "the size in the guest")
    guest.run("dd if=/dev/urandom of=/dev/vda bs=1M seek=318 count=2 oflag=direct conv=notrunc 2>/dev/null")
    guest.run("umount /mnt")


def test_a_kill_of_the_node_under_load_is_survived(node, guest):
    """QEMU connects again, and every request that was under way is done: fio's checksums say so."""
    job = f"{FIO} --filename=/dev/vda --rw=randwrite --bs=4k --size=48M --iodepth=32 --rate_iops=1500"
    guest.run(f"({job} --verify=crc32c --do_verify=1 && echo fine > /tmp/done || echo bad > /tmp/done) & true")
    for _ in range(3):
        time.sleep(2)
        node.nodes[0].kill()
        time.sleep(1)
        node.nodes[0].start()
        node.wait_healthy()
    guest.run("while [ ! -f /tmp/done ]; do sleep 1; done", within_s=300)
    assert guest.run("cat /tmp/done") == "fine", guest.run("cat /tmp/fio")
    guest.run("dd if=/dev/vda of=/dev/null bs=1M iflag=direct 2>/dev/null", within_s=120)
