"""Secrets that Linux's own NVMe host proves, in a virtual machine. Not part of the other tests: `./dev guest` runs it.

Debian 12's kernel is built without DH-HMAC-CHAP, so this one is of its backports."""

import os
import time
from pathlib import Path

import pytest

from tools.harness.cluster import HOST, run_cli
from tools.harness.guest import HOST_IN_GUEST, Guest
from tools.harness.process import free_port, wait_until

KERNEL = os.environ.get("AZEKURA_NEWER_KERNEL", "")
NQN = "nqn.2014-08.org.nvmexpress:uuid:5b0a2a3f-8e3e-4d63-9f9a-0d3c2a1b4c5d"
SUBSYSTEM = "nqn.2026-01.io.azekura:vol1"
OTHER = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_NEWER_KERNEL names no unpacked kernel (./dev guest does)")


@pytest.fixture(scope="module")
def node(module_cluster):
    cluster = module_cluster(start=False, nodes=1, api_access="grants")
    cluster.nvme_port = free_port()
    nvme = ["--nvme", f"{HOST}:{cluster.nvme_port}", "--ask-loopback-hosts"]
    cluster.first.options = [*nvme, "--shards", "3", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "256MiB", copies=1)
    wait_until(lambda: run_cli("ca", "show", api=cluster.first.api).returncode == 0, 30, "an authority")
    return cluster


@pytest.fixture(scope="module")
def guest(node, tmp_path_factory):
    machine = Guest(Path(KERNEL), tmp_path_factory.mktemp("guest"))
    machine.target = f"-t tcp -a {HOST_IN_GUEST} -s {node.nvme_port}"
    yield machine
    machine.stop()


def devices(guest):
    return guest.run("ls /dev | grep -E '^nvme[0-9]+n[0-9]+$' || true").split()


def connect(guest, *options, fails=False):
    guest.run(f"nvme connect {guest.target} -n {SUBSYSTEM} {' '.join(options)}", fails=fails)


def test_a_host_proves_its_secret(node, guest):
    made = node.json("host", "add", "db7", "--nqn", NQN, "--chap", "--mutual")
    own, cluster = made["chap"]["secret"], made["mutual"]["secret"]
    # Without a secret, with another one, and where the node's is not what the host expects.
    connect(guest, fails=True)
    connect(guest, "-S", OTHER, fails=True)
    wait_until(lambda: "wrong secret for DH-HMAC-CHAP" in node.first.log(), 10, "the node's word of it")
    connect(guest, "-S", own, "-C", OTHER, fails=True)
    wait_until(lambda: "another secret than it knows of the cluster" in node.first.log(), 10, "the node's word of it")
    assert devices(guest) == []
    # Of a discovery, too. (nvme-cli 2.3 does not hand the secret on for one: tests/test_hosts.py has a host that does.)
    assert "key not available" in guest.run(f"nvme discover {guest.target} 2>&1", fails=True)
    # Both directions, with all queues, and a file system on it.
    connect(guest, "-S", own, "-C", cluster)
    wait_until(lambda: devices(guest), 20, "the namespace")
    (device,) = devices(guest)
    queues = int(guest.run("cat /sys/class/nvme/nvme*/queue_count").split()[0])
    assert queues >= 2
    guest.run(f"mkfs.ext4 -q /dev/{device} && mount /dev/{device} /mnt")
    guest.run("dd if=/dev/urandom of=/mnt/file bs=1M count=32 2>/dev/null; sync")
    before = guest.run("md5sum /mnt/file")
    # A node that restarts has it proved anew, by a host that nobody has to help.
    node.first.kill()
    node.first.start()
    node.wait_healthy()
    guest.run("echo 3 > /proc/sys/vm/drop_caches")
    assert guest.run("md5sum /mnt/file", within_s=120) == before
    guest.run("dd if=/dev/zero of=/mnt/file2 bs=1M count=8 2>/dev/null; sync", within_s=120)
    guest.run("umount /mnt")
    # What has ended is not let in again.
    node.cli("host", "remove", "db7")
    deadline = time.monotonic() + 60
    while "live" in guest.run("cat /sys/class/nvme/nvme*/state 2>/dev/null || true"):
        assert time.monotonic() < deadline, "the controller lives on"
        time.sleep(0.2)
    guest.run("nvme disconnect-all")
    connect(guest, "-S", own, fails=True)
    warned = [line for line in guest.console_tail(200).splitlines() if "WARNING" in line or "BUG" in line]
    assert not warned, warned
    assert own not in node.first.log() and cluster not in node.first.log()
