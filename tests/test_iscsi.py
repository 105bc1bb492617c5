"""The iSCSI door as clients that are not ours see it: libiscsi's tools and its conformance test, and QEMU."""

import os
import re
from pathlib import Path

import pytest

from tools.harness.cluster import HOST
from tools.harness.process import free_port, wait_until
from tools.harness.run import run

MIB = 2**20
PREFIX = "iqn.2026-01.io.azekura:"
SUITE_WITHIN_S = 120
# Suites of iscsi-test-cu that do not pass, and why (docs/iscsi.md).
KNOWN = {"iSCSIdatasn": "one of its four wrong orders of Data-Out is taken; not understood yet"}


@pytest.fixture(scope="module")
def portal(module_cluster):
    """A node with the door, and volumes behind it."""
    address = f"{HOST}:{free_port()}"
    cluster = module_cluster(nodes=1, node_options=["--iscsi", address])
    cluster.create_volume("vol1", "128MiB", copies=1)
    cluster.create_volume("Vol_2", "64MiB", copies=1)
    wait_until(lambda: PREFIX + "vol1" in listed(address), 10, "the volume to be listed")
    return address


def listed(address):
    return run("iscsi-ls", f"iscsi://{address}").stdout


def url(address, volume="vol1"):
    return f"iscsi://{address}/{PREFIX}{volume}/0"


def test_discovery_names_every_volume(portal):
    wait_until(lambda: PREFIX + ":56ol:5f2" in listed(portal), 10, "the second volume to be listed")
    assert f"Target:{PREFIX}vol1 Portal:{portal},1" in listed(portal)
    shown = run("iscsi-ls", "--show-luns", f"iscsi://{portal}").stdout
    assert "Lun:0" in shown and "DIRECT_ACCESS" in shown, shown


def test_inquiry_of_every_page(portal):
    assert "AZEKURA" in run("iscsi-inq", url(portal)).stdout
    for page in (0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2):
        run("iscsi-inq", "--evpd=1", f"--pagecode={page}", url(portal))


def test_an_unknown_target_is_refused(portal):
    done = run("iscsi-inq", url(portal, "nothing"), check=False)
    assert done.returncode != 0 and "not found" in (done.stdout + done.stderr).lower(), done


@pytest.mark.skipif(not list(Path("/usr/lib").glob("*/qemu/block-iscsi.so")), reason="needs qemu-block-extra")
def test_qemu_reads_what_it_wrote(portal, folder):
    target = url(portal, ":56ol:5f2")
    image = folder / "image"
    image.write_bytes(os.urandom(64 * MIB))
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, target)
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, target)
    words = ["qemu-io", "-f", "raw", target]
    run(*words, "-c", "write -P 7 1M 3M", "-c", "discard 2M 1M", "-c", "read -P 7 1M 1M", "-c", "read -P 0 2M 1M")
    run(*words, "-c", "write -z 0 8M", "-c", "read -P 0 0 8M", "-c", "flush")


def suites():
    """The suites of iscsi-test-cu."""
    names = run("iscsi-test-cu", "--list", check=False).stdout.split()
    return [name.removeprefix("ALL.") for name in names if re.fullmatch(r"ALL\.\w+", name)]


def test_libiscsis_conformance_test(portal):
    """Every test of a suite passes, or is skipped for what docs/iscsi.md lists as missing. Each suite has a process of
    its own: version 1.19 changes the length of all later 16-byte commands to one block when its test of the data of
    COMPARE AND WRITE is skipped."""
    failed = {}
    for suite in suites():
        words = ["iscsi-test-cu", "--dataloss", "--test", f"ALL.{suite}", url(portal)]
        done = run(*words, check=False, within_s=SUITE_WITHIN_S)
        summary = re.search(r"^\s*tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", done.stdout, re.MULTILINE)
        if summary is None or summary[4] != "0":
            failed[suite] = (done.stdout + done.stderr)[-1500:]
    assert failed.keys() <= KNOWN.keys(), "\n".join(f"{suite}: {text}" for suite, text in failed.items())
