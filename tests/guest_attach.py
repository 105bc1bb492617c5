"""azekura attach with the kernel's NVMe/TCP and NBD: Debian's kernel in a virtual machine. Not part of the other tests:
`./dev guest` runs it."""

import json
import os
from pathlib import Path

import pytest

from tools.harness.cluster import HOST, binary
from tools.harness.guest import HOST_IN_GUEST, Guest
from tools.harness.process import free_port, wait_until

KERNEL = os.environ.get("AZEKURA_GUEST_KERNEL", "")
MIB = 2**20

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_GUEST_KERNEL names no unpacked kernel (./dev guest does)")


@pytest.fixture(scope="module")
def cluster(module_cluster):
    made = module_cluster(start=False, nodes=1)
    made.first.nvme_port = free_port()
    made.first.options = ["--nvme", f"{HOST}:{made.first.nvme_port}"]
    made.start()
    made.create_volume("vol1", "128MiB", copies=1)
    made.create_volume("large", "64MiB", copies=1, block=4096)
    return made


@pytest.fixture(scope="module")
def guest(cluster, tmp_path_factory):
    machine = Guest(Path(KERNEL), tmp_path_factory.mktemp("guest"), programs={binary(): "/bin/azekura"})
    # The node's addresses are loopbacks: those of the guest lead there.
    for port in (cluster.first.api_port, cluster.first.nbd_port, cluster.first.nvme_port):
        machine.run(f"nc -ll -p {port} -e nc {HOST_IN_GUEST} {port} >/dev/null 2>&1 &")
    machine.run(f"export AZEKURA_API=http://127.0.0.1:{cluster.first.api_port}")
    yield machine
    machine.stop()


def told(guest, command, **more):
    # The line is a terminal, on which progress would be shown.
    return json.loads(guest.run(f"azekura {command} --json 2>/tmp/said || {{ cat /tmp/said; false; }}", **more))


@pytest.mark.parametrize("via", ["nvme", "nbd"])
def test_a_volume_is_a_device_of_the_kernel(cluster, guest, via):
    made = told(guest, f"attach vol1 --via {via}")
    assert made["via"] == via and made["node"] == "n1" and made["passed_over"] == []
    assert made["device"].startswith({"nvme": "/dev/nvme0n", "nbd": "/dev/nbd"}[via])
    assert guest.run("readlink /dev/azekura/vol1") == made["device"]
    assert told(guest, "attach vol1")["device"] == made["device"]
    guest.run("mkfs.ext4 -q -F /dev/azekura/vol1", within_s=120)
    guest.run("mount /dev/azekura/vol1 /mnt && dd if=/dev/urandom of=/mnt/a bs=1M count=8 2>/dev/null && sync")
    digest = guest.run("sha256sum </mnt/a")
    [shown] = told(guest, "attached")
    assert (shown["volume"], shown["via"], shown["size_bytes"]) == ("vol1", via, 128 * MIB)
    assert "mounted at /mnt" in guest.run("azekura detach vol1 2>&1", fails=True)
    guest.run("umount /mnt")
    assert told(guest, "detach vol1", within_s=60)["device"] == made["device"]
    assert told(guest, "attached") == [] and told(guest, "detach vol1")["device"] is None
    wait_until(lambda: not cluster.json("volume", "show", "vol1")["attachments"], 30, "the volume to be given back")
    # By the other way the same is there.
    other = {"nvme": "nbd", "nbd": "nvme"}[via]
    told(guest, f"attach vol1 --via {other}")
    guest.run("mount /dev/azekura/vol1 /mnt")
    assert guest.run("sha256sum </mnt/a") == digest
    guest.run("umount /mnt")
    told(guest, "detach vol1")
    wait_until(lambda: not cluster.json("volume", "show", "vol1")["attachments"], 30, "the volume to be given back")


def test_a_volume_of_large_blocks_is_a_device_of_large_blocks(cluster, guest):
    device = told(guest, "attach large")["device"]
    queue = f"/sys/block/{device.removeprefix('/dev/')}/queue"
    assert guest.run(f"cat {queue}/logical_block_size") == "4096"
    guest.run("mkfs.ext4 -q -F /dev/azekura/large", within_s=120)
    guest.run("mount /dev/azekura/large /mnt && echo text > /mnt/a && umount /mnt && e2fsck -fn /dev/azekura/large")
    told(guest, "detach large", within_s=60)
    wait_until(lambda: not cluster.json("volume", "show", "large")["attachments"], 30, "the volume to be given back")
    refused = guest.run("azekura attach large --via nbd 2>&1", fails=True)
    assert "nbd-client does not ask for block sizes" in refused


def test_the_best_way_is_taken(guest):
    made = told(guest, "attach vol1")
    assert made["via"] == "nvme" and made["passed_over"] == []
    told(guest, "detach vol1")


def test_a_restart_of_the_node_is_waited_for(cluster, guest):
    """By NVMe/TCP. The kernel's NBD fails what is under way, and its device is to be had again a moment later."""
    told(guest, "attach vol1 --via nvme")
    cluster.first.kill()
    cluster.first.start()
    guest.run("dd if=/dev/urandom of=/tmp/a bs=64k count=16 2>/dev/null")
    guest.run("dd if=/tmp/a of=/dev/azekura/vol1 bs=64k oflag=direct 2>/dev/null", within_s=120)
    same = "dd if=/dev/azekura/vol1 bs=64k count=16 iflag=direct 2>/dev/null | cmp - /tmp/a"
    guest.run(same, within_s=120)
    told(guest, "detach vol1", within_s=60)
