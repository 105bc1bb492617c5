"""A device whose map is damaged or gone gets one that is made from its log, and is compared instead of copied."""

import json
import random
import re
import urllib.request

import pytest

from tools.harness.cluster import run_cli
from tools.harness.device import log_files
from tools.harness.nbd import Client
from tools.harness.process import wait_until

BLOCK, MIB = 4096, 2**20
SIZE_MIB = 256


def noise(number, length):
    return random.Random(number).randbytes(length)


def fill(cluster):
    """A volume with marked data, a snapshot, and overwrites and trims after that; what it and a clone of the snapshot
    must show."""
    cluster.create_volume(size=f"{SIZE_MIB}MiB", copies=3)
    with Client(cluster.first.uri()) as client:
        for at in range(0, 224):
            client.write(at * MIB, noise(at, MIB))
    cluster.cli("snapshot", "create", "vol1@before")
    with Client(cluster.first.uri()) as client:
        for at in range(0, 16):
            client.write(at * MIB + 64 * BLOCK, noise(100 + at, 64 * BLOCK))
        client.trim(20 * MIB, 4 * MIB)
        for number in range(500):
            client.write(230 * MIB + number % 50 * 3 * BLOCK, noise(1000 + number, BLOCK))
        # Something follows each group's last write.
        for number in range(SIZE_MIB // 4):
            client.write((number + 1) * 4 * MIB - BLOCK, noise(5000 + number, BLOCK))
        client.flush()


def contents(cluster, node, volume="vol1"):
    with Client(node.uri(volume)) as client:
        return b"".join(client.read(at * MIB, MIB) for at in range(SIZE_MIB))


def log_bytes(node, device):
    """Bytes that a node has written to a device's log since it started."""
    with urllib.request.urlopen(f"{node.api}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    row = rf'^azekura_device_log_bytes_total\{{[^}}]*device="{device}"[^}}]*\}} (\S+)$'
    found = re.findall(row, text, re.MULTILINE)
    assert len(found) == 1, text
    return float(found[0])


def damage(path):
    """Bad bytes all over the file, at the places that a reader comes to first as well."""
    with open(path, "r+b") as file:
        size = file.seek(0, 2)
        for at in range(0, size, 64 * 1024):
            file.seek(at)
            file.write(noise(at, 4096))


def failure(cluster, node):
    """What the cluster says of a node's device that is out of service."""
    devices = [device for device in cluster.json("device", "list") if device["node_name"] == node.name]
    status = json.dumps(cluster.json_of_unhealthy("status"))
    return (devices[0].get("failure"), status)


def rebuilt(folder, *options):
    """The command's report."""
    result = run_cli("store", "rebuild-map", folder, "--json", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("what", ["damaged", "gone"])
def test_a_device_with_a_rebuilt_map_is_compared_and_not_copied(make_cluster, what):
    cluster = make_cluster(config="etcd", device_size="1GiB")
    fill(cluster)
    node = cluster.nodes[2]
    log = log_files(node)[0]
    folder, path = log.parent, log.parent / "map.redb"
    running = run_cli("store", "rebuild-map", folder)
    assert running.returncode != 0 and "a node has the device open" in running.stderr, running.stderr
    node.kill()
    sound = run_cli("store", "rebuild-map", folder)
    assert sound.returncode != 0 and "can be opened: nothing was changed" in sound.stderr, sound.stderr
    # What is written meanwhile the log does not have.
    with Client(cluster.first.uri()) as client:
        client.write(0, noise(7777, 4 * BLOCK))
    if what == "damaged":
        damage(path)
    else:
        path.unlink()
    node.start()
    wait_until(lambda: "rebuild-map" in node.log(), 60, "the node to say what to do")
    named = f"'azekura store rebuild-map {folder}' makes a new map from the log"
    assert named in node.log()
    if what == "damaged":
        (said,) = [line for line in node.log().splitlines() if "can't open the map" in line]
        assert said.count(str(path)) == 1 and "map error" not in said, said
    wait_until(lambda: failure(cluster, node)[0], 60, "the failure to be known")
    assert "rebuild-map" in failure(cluster, node)[1]
    # The device is out of service, and its node may go on meanwhile.
    before = path.read_bytes() if path.exists() else None
    dry = rebuilt(folder, "--dry-run")
    assert dry["dry_run"] and dry["live_blocks"] > 40_000 and dry["last_copies"] == []
    assert (path.read_bytes() if path.exists() else None) == before, "nothing is written"
    report = rebuilt(folder)
    assert {**report, "dry_run": True, "former_map": None} == dry
    kept = folder / "map.redb.damaged-1"
    assert kept.exists() == (what == "damaged") == (report["former_map"] == str(kept))
    checked = run_cli("store", "check", folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    node.stop()
    cluster.start()
    # So much is in the device's log; hardly anything was sent for it.
    held = report["live_blocks"] * BLOCK
    device = next(device["id"] for device in cluster.json("device", "list") if device["node_name"] == node.name)
    sent = log_bytes(node, device)
    print(f"{what}: {held} bytes of blocks were found, {sent:.0f} bytes of log were written to bring the copies level")
    assert sent < held / 4, f"{sent} bytes for {held}"
    assert cluster.json("scrub", "vol1", "--wait")["findings"] == 0
    cluster.cli("volume", "create", "old", "--from", "vol1@before")
    cluster.wait_healthy()
    wanted = contents(cluster, cluster.first), contents(cluster, cluster.first, "old")
    assert wanted[0][20 * MIB : 23 * MIB] == bytes(3 * MIB) and wanted[1][20 * MIB : 21 * MIB] == noise(20, MIB)
    assert (contents(cluster, node), contents(cluster, node, "old")) == wanted
    cluster.stop()
    assert cluster.unsound() == 0


def test_the_last_copy_is_served_only_when_that_is_accepted(make_cluster):
    cluster = make_cluster(nodes=1, device_size="512MiB")
    cluster.create_volume(size="16MiB", copies=1)
    wanted = noise(1, MIB)
    with Client(cluster.first.uri()) as client:
        client.write(0, wanted)
        client.write(4 * MIB, noise(2, BLOCK))
        client.trim(4 * MIB, BLOCK)
    node = cluster.first
    # Its copy of the configuration follows within seconds.
    copied = node.data / "configuration.json"
    wait_until(lambda: copied.exists() and copied.read_text().count("/groups/") >= 64, 60, "the configuration's copy")
    node.kill()
    folder = log_files(node)[0].parent
    (folder / "map.redb").unlink()
    said = run_cli("store", "rebuild-map", folder)
    assert said.returncode == 0 and "--accept-possibly-old" in said.stdout, said.stdout + said.stderr
    node.start()
    listed = lambda: run_cli("group", "list", "--json", api=node.api, program=cluster.program).stdout  # noqa: E731
    wait_until(lambda: "not proven" in listed(), 60, "the copies' state")
    assert cluster.json_of_unhealthy("status")["groups"].get("unavailable"), "nobody is served by them"
    node.stop()
    report = rebuilt(folder, "--accept-possibly-old", "--anyway")
    assert report["accepted"] and not report["last_copies"]
    cluster.start()
    with Client(node.uri()) as client:
        assert client.read(0, MIB) == wanted
        assert client.read(4 * MIB, BLOCK) == bytes(BLOCK)
        client.write(MIB, wanted)
        assert client.read(MIB, MIB) == wanted
    cluster.stop()
    assert cluster.unsound() == 0


def test_what_can_not_be_rebuilt_is_said(make_cluster, folder):
    cluster = make_cluster(nodes=1, device_size="512MiB")
    cluster.create_volume(size="16MiB", copies=1)
    cluster.stop()
    device = log_files(cluster.first)[0].parent
    nothing = run_cli("store", "rebuild-map", folder / "nothing")
    assert nothing.returncode != 0 and "give the folder of a device" in nothing.stderr, nothing.stderr
    elsewhere = run_cli("store", "rebuild-map", device, "--anyway", "--data", folder / "c0")
    assert elsewhere.returncode != 0 and "configuration.json" in elsewhere.stderr, elsewhere.stderr
    # The superblock is gone.
    with open(device / "log", "r+b") as log:
        log.write(bytes(2 * BLOCK))
    blank = run_cli("store", "rebuild-map", device, "--anyway")
    assert blank.returncode != 0 and "superblock" in blank.stderr, blank.stderr
    assert "panicked" not in nothing.stderr + elsewhere.stderr + blank.stderr
