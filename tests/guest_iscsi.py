"""A volume by several nodes at a time, as Linux's own initiator and dm-multipath have it: open-iscsi, udev, multipathd
and Debian's kernel in a virtual machine, a session a node, of which nodes are killed and stand still under fio. Not
part of the other tests: `./dev guest` runs it."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tools.harness.cluster import HOST
from tools.harness.guest import HOST_IN_GUEST, Guest
from tools.harness.paths import stop_writers, writer
from tools.harness.process import free_port, wait_until

TARGET = "iqn.2026-01.io.azekura:vol1"
KERNEL = os.environ.get("AZEKURA_GUEST_KERNEL", "")
FIO = "fio --name=job --ioengine=libaio --direct=1 --thread --minimal --output=/tmp/fio"
VERIFY = "--rw=randwrite --bs=4k --iodepth=8 --size=96M --verify=crc32c --verify_backlog=256 --time_based --runtime=150"
DONE_WITHIN_S, STAYS_S = 400, 8
DISK = "/dev/mapper/vol1"

PROGRAMS = {
    "iscsid": "/sbin/iscsid",
    "iscsiadm": "/sbin/iscsiadm",
    "multipath": "/sbin/multipath",
    "multipathd": "/sbin/multipathd",
    "dmsetup": "/sbin/dmsetup",
    "fio": "/usr/bin/fio",
    "/lib/systemd/systemd-udevd": "/lib/systemd/systemd-udevd",
    "udevadm": "/bin/udevadm",
    "/lib/udev/scsi_id": "/lib/udev/scsi_id",
    "/lib/multipath/libchecktur.so": "/lib/multipath/libchecktur.so",
    "/lib/multipath/libprioalua.so": "/lib/multipath/libprioalua.so",
    "/lib/multipath/libprioconst.so": "/lib/multipath/libprioconst.so",
}
RULES = ["50-udev-default", "55-dm", "60-block", "60-multipath", "60-persistent-storage", "95-dm-notify"]
MODULES = [
    *["lib/libcrc32c", "drivers/scsi/scsi_common", "drivers/scsi/scsi_mod"],
    *["drivers/scsi/sd_mod", "drivers/scsi/sg", "drivers/scsi/scsi_transport_iscsi", "drivers/scsi/libiscsi"],
    *["drivers/scsi/libiscsi_tcp", "drivers/scsi/iscsi_tcp", "drivers/md/dm-mod", "drivers/md/dm-multipath"],
    *["drivers/md/dm-service-time", "drivers/md/dm-round-robin"],
]
# docs/iscsi.md has the same.
MULTIPATH = """
defaults {
    user_friendly_names yes
    find_multipaths no
}
devices {
    device {
        vendor "AZEKURA"
        product "Volume"
        path_grouping_policy failover
        prio alua
        path_checker tur
        failback immediate
        no_path_retry queue
        fast_io_fail_tmo 5
    }
}
"""
ISCSID = """
node.startup = manual
node.session.timeo.replacement_timeout = 5
node.conn[0].timeo.noop_out_interval = 2
node.conn[0].timeo.noop_out_timeout = 3
"""
FILES = {
    "/etc/multipath.conf": MULTIPATH,
    "/etc/iscsi/iscsid.conf": ISCSID,
    "/etc/iscsi/initiatorname.iscsi": "InitiatorName=iqn.2000-01.example:guest\n",
    "/etc/group": "".join(f"{name}:x:{number}:\n" for number, name in enumerate("root disk tty kvm".split())),
    "/etc/passwd": "root:x:0:0::/tmp:/bin/sh\n",
}
BEGIN = [
    "mkdir -p /run/lock/iscsi /run/udev /var/lib/iscsi /dev/mapper /etc/multipath /dev/shm; ln -sf /run /var/run",
    "ln -sf /run/lock /var/lock; /lib/systemd/systemd-udevd --daemon; udevadm trigger --action=add; udevadm settle",
    "multipathd; iscsid",
]

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_GUEST_KERNEL names no unpacked kernel (./dev guest does)")


@pytest.fixture(scope="module")
def cluster(module_cluster):
    """Three nodes with the door, and a volume that is not shared."""
    cluster = module_cluster(start=False, config="etcd", nodes=3)
    cluster.ports = [free_port() for _ in cluster.nodes]
    for node, port in zip(cluster.nodes, cluster.ports, strict=True):
        node.options = ["--iscsi", f"{HOST}:{port}"]
    cluster.start()
    cluster.create_volume("vol1", "128MiB")
    cluster.wait_healthy()
    return cluster


@pytest.fixture(scope="module")
def guest(cluster, tmp_path_factory):
    where = lambda name: name if "/" in name else shutil.which(name, path="/sbin:/usr/sbin:/bin:/usr/bin")  # noqa: E731
    programs = {where(program): place for program, place in PROGRAMS.items()}
    rules = {f"/lib/udev/rules.d/{name}.rules": Path(f"/lib/udev/rules.d/{name}.rules").read_text() for name in RULES}
    machine = Guest(Path(KERNEL), tmp_path_factory.mktemp("guest"), (), programs, MODULES, FILES | rules)
    for port in cluster.ports:
        # Discoveries name the loopback, where the nodes are.
        machine.run(f"nc -ll -p {port} -e nc {HOST_IN_GUEST} {port} >/dev/null 2>&1 &")
    for command in BEGIN:
        machine.run(command)
    yield machine
    machine.run("iscsiadm -m node -u; true")
    machine.stop()


def paths(guest):
    """How multipathd sees each path: its priority, its state for the device mapper, and the one of its checker."""
    shown = guest.run("multipathd show paths raw format '%d %p %t %T'; true")
    lines = (line.split() for line in shown.splitlines())
    return sorted(tuple(line[1:]) for line in lines if len(line) == 4 and line[0].startswith("sd"))


def settles(cluster, guest):
    """Whether the writes stay at one node from some moment on, and multipathd sees that as the best path."""
    for _ in range(4):
        wait_until(lambda: paths(guest) == GOOD, 90, "all paths to be there, and one to be the best one")
        at = writer(cluster)
        until = time.monotonic() + STAYS_S
        while writer(cluster) == at and paths(guest) == GOOD:
            if time.monotonic() > until:
                return True
            time.sleep(0.5)
    return False


GOOD = [("10", "active", "ready"), ("10", "active", "ready"), ("50", "active", "ready")]


def test_a_discovery_at_one_node_gives_a_disk_of_three_paths(cluster, guest):
    found = guest.run(f"iscsiadm -m discovery -t sendtargets -p {HOST}:{cluster.ports[0]}", within_s=60)
    portals = {line.split()[0].split(",")[0] for line in found.splitlines()}
    assert portals == {f"{HOST}:{port}" for port in cluster.ports}
    assert all(line.endswith(TARGET) for line in found.splitlines())
    guest.run("iscsiadm -m node --login", within_s=120)
    wait_until(lambda: paths(guest) == GOOD, 60, "one path to be the best one")
    name = guest.run("multipathd show maps raw format '%n'").splitlines()[0]
    guest.run(f"ln -sf /dev/mapper/{name} {DISK}")
    guest.run(f"mkfs.ext4 -q -F {DISK} && mount {DISK} /mnt && echo text > /mnt/file && umount /mnt", within_s=120)
    guest.run(f"e2fsck -fn {DISK}", within_s=60)


def test_fio_goes_on_when_nodes_are_killed_and_stand_still(cluster, guest):
    guest.run(f"({FIO} --filename={DISK} {VERIFY} > /tmp/said 2>&1 && echo fine || echo failed) > /tmp/done & sleep 2")
    for _ in stop_writers(cluster, within_s=90):
        assert settles(cluster, guest), "the writes go to and fro"
    wait_until(lambda: guest.run("cat /tmp/done") != "", DONE_WITHIN_S, "fio")
    assert guest.run("cat /tmp/done") == "fine", guest.run("cat /tmp/said /tmp/fio; dmesg | tail -40")
    assert guest.run("dmesg | grep -E 'Buffer I/O|error.*dev dm-' || true") == ""


def test_linux_counts_a_disk_of_large_blocks_in_them(cluster, guest):
    cluster.create_volume("large", "64MiB", block=4096)
    cluster.wait_healthy()
    portal, target = f"{HOST}:{cluster.ports[0]}", TARGET.replace("vol1", "large")
    guest.run(f"iscsiadm -m discovery -t sendtargets -p {portal}", within_s=60)
    guest.run(f"iscsiadm -m node -T {target} -p {portal} --login", within_s=120)
    find = "grep -l 4096 /sys/block/sd*/queue/logical_block_size || true"
    wait_until(lambda: guest.run(find), 30, "the disk")
    [found] = guest.run(find).splitlines()
    disk = found.split("/")[3]
    names = ["physical_block_size", "minimum_io_size", "discard_granularity"]
    assert [guest.run(f"cat /sys/block/{disk}/queue/{name}") for name in names] == ["4096"] * 3
    wait_until(lambda: guest.run(f"ls /sys/block/{disk}/holders"), 30, "multipathd to take the disk")
    device = "/dev/" + guest.run(f"ls /sys/block/{disk}/holders")
    guest.run(f"{FIO} --filename={device} --rw=write --bs=512 --size=512", fails=True)
    verify = "--rw=randwrite --bs=4k --iodepth=8 --size=32M --verify=crc32c --verify_backlog=256"
    guest.run(f"{FIO} --filename={device} {verify}", within_s=180)
    guest.run(f"mkfs.ext4 -q -F {device} && mount {device} /mnt && echo text > /mnt/a && umount /mnt", within_s=120)
    guest.run(f"e2fsck -fn {device}", within_s=60)
