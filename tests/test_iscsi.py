"""The iSCSI door as clients that are not ours see it: libiscsi's tools and its conformance test, and QEMU."""

import os
from pathlib import Path

import pytest

from tools.harness.cluster import HOST
from tools.harness.iscsi import BLOCK, GOOD, Session
from tools.harness.iscsi_suite import LONG, SKIPPED, SUITE_WITHIN_S, conformance, results
from tools.harness.process import free_port, wait_until
from tools.harness.run import run

MIB = 2**20
PREFIX = "iqn.2026-01.io.azekura:"
# Tests of iscsi-test-cu that do not pass, and why (docs/iscsi.md).
KNOWN = {
    "GetLBAStatus.UnmapSingle": "asks for block i + 1 and wants to hear of block i + 8",
    "MultipathIO.Reset": "a reset at one node's portal is no unit attention at the other's yet",
}


@pytest.fixture(scope="module")
def portals(module_cluster):
    """Two nodes with the door, and volumes behind it: vol1 may be used at both at a time."""
    cluster = module_cluster(start=False, nodes=2)
    addresses = [f"{HOST}:{free_port()}" for _ in cluster.nodes]
    for node, address in zip(cluster.nodes, addresses, strict=True):
        node.options = ["--iscsi", address]
    cluster.start()
    cluster.create_volume("vol1", "128MiB", shared=True)
    cluster.create_volume("Vol_2", "64MiB")
    for address in addresses:
        wait_until(lambda address=address: PREFIX + "vol1" in listed(address), 10, "the volume to be listed")
    return addresses


@pytest.fixture
def portal(portals):
    return portals[0]


def listed(address):
    return run("iscsi-ls", f"iscsi://{address}").stdout


def url(address, volume="vol1"):
    return f"iscsi://{address}/{PREFIX}{volume}/0"


def test_discovery_names_every_volume(portal):
    wait_until(lambda: PREFIX + ":56ol:5f2" in listed(portal), 10, "the second volume to be listed")
    assert f"Target:{PREFIX}vol1 Portal:{portal}," in listed(portal)
    shown = run("iscsi-ls", "--show-luns", f"iscsi://{portal}").stdout
    assert "Lun:0" in shown and "DIRECT_ACCESS" in shown, shown


def test_inquiry_of_every_page(portal):
    assert "AZEKURA" in run("iscsi-inq", url(portal)).stdout
    for page in (0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2):
        run("iscsi-inq", "--evpd=1", f"--pagecode={page}", url(portal))


def test_blocks_are_copied_and_bits_set_by_the_nodes(portals):
    """A copy over chunks' borders, off the blocks of 4 KiB, half of it zeros; and bits of the same blocks that hosts at
    both nodes set at the same time."""
    one, other = (Session(at, PREFIX + "vol1", name=f"iqn.2000-01.example:{at}").log_in() for at in portals)
    with one, other:
        data = os.urandom(700 * BLOCK) + bytes(700 * BLOCK)
        for at in range(0, 1400, 100):
            one.write(8000 + at, data[at * BLOCK : (at + 100) * BLOCK])
            other.write(100_003 + at, b"x" * (100 * BLOCK))
        assert one.copy_status(8000, 100_003, 1400) == GOOD
        assert other.read(100_003, 1400) == data
        one.write(16_380, bytes(16 * BLOCK))
        for bit in range(4):
            tasks = [(one, one.send_or(16_380, bytes([1 << bit]) * (16 * BLOCK)))]
            tasks.append((other, other.send_or(16_380, bytes([16 << bit]) * (16 * BLOCK))))
            assert all(session.status_of(task)[0] == GOOD for session, task in tasks)
        assert one.read(16_380, 16) == b"\xff" * (16 * BLOCK)


def test_an_unknown_target_is_refused(portal):
    done = run("iscsi-inq", url(portal, "nothing"), check=False)
    assert done.returncode != 0 and "not found" in (done.stdout + done.stderr).lower(), done


def test_qemu_reads_what_it_wrote(portal, folder):
    target = url(portal, ":56ol:5f2")
    image = folder / "image"
    image.write_bytes(os.urandom(64 * MIB))
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, target)
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, target)
    words = ["qemu-io", "-f", "raw", target]
    run(*words, "-c", "write -P 7 1M 3M", "-c", "discard 2M 1M", "-c", "read -P 7 1M 1M", "-c", "read -P 0 2M 1M")
    run(*words, "-c", "write -z 0 8M", "-c", "read -P 0 0 8M", "-c", "flush")


def test_libiscsis_conformance_test_at_two_portals(portals):
    """Every test of every suite passes, but for the known ones, or is skipped for a reason that docs/iscsi.md gives."""
    told = conformance(list(map(url, portals)))
    assert told.failed.keys() == KNOWN.keys(), "\n".join(f"{test}: {text}" for test, text in told.failed.items())
    assert not told.unknown, told.unknown
    assert told.passed > 170, told.skipped


def test_a_reset_is_heard_by_the_other_sessions_of_a_node(portal):
    """The test of libiscsi that fails at two nodes, with two sessions at one."""
    words = ["iscsi-test-cu", "--dataloss", "--test", "ALL.MultipathIO.Reset", url(portal), url(portal)]
    told = list(results("MultipathIO", run(*words, check=False, within_s=SUITE_WITHIN_S).stdout))
    assert told == [("MultipathIO.Reset", True, None)]


def test_every_reason_for_a_skipped_test_is_in_the_documents():
    text = (Path(__file__).parents[1] / "docs" / "iscsi.md").read_text()
    table = text.split("## What libiscsi's test skips")[1]
    for row in {*SKIPPED.values(), *KNOWN, *LONG}:
        assert row in table, row
