"""The package on a small Debian that boots systemd in a container: installed, started, used, upgraded and removed.

Not part of the tests that `./dev test` collects: `./dev package test` makes the package and runs this.
"""

import os
import re
import shutil
import textwrap

import pytest

from tools.harness.cluster import ROOT
from tools.harness.document import commands
from tools.harness.machine import Machine
from tools.harness.nbd import Client
from tools.harness.process import wait_until
from tools.harness.run import run

PACKAGE = os.environ.get("AZEKURA_PACKAGE")
PAGE = ROOT / "docs" / "operations" / "service.md"
SERVICE = "azekura.service"
CONFIG = "/etc/azekura/config.toml"
# What systemd-analyze calls the exposure of a service, from 0 to 10. This one had 1.7 when it was written.
EXPOSURE_MAX = 2.0

pytestmark = [pytest.mark.root, pytest.mark.skipif(not PACKAGE, reason="./dev package test makes the package first")]


@pytest.fixture
def machine(folder):
    booted = Machine(folder / "root", folder)
    booted.put(PACKAGE, "/root/azekura.deb")
    yield booted
    booted.close()


def show(machine, name):
    return machine.run("systemctl", "show", "--value", "--property", name, SERVICE).stdout.strip()


def log(machine):
    return machine.run("journalctl", "--no-pager", "--unit", SERVICE).stdout


def install(machine):
    return machine.follow(PAGE, "install")


def set_options(machine, text):
    path = machine.file(CONFIG)
    path.write_text(path.read_text() + text)


def test_from_installed_to_removed(machine):
    told = install(machine).stdout
    assert "systemctl enable --now azekura" in told, told
    assert show(machine, "ActiveState") == "inactive", "nothing runs before it is told what to do"
    assert machine.run("azekura", "config", "check").stdout.startswith(CONFIG)

    # A start that can't be says why.
    machine.run("systemctl", "start", SERVICE, check=False)
    wait_until(lambda: "where is the cluster's configuration?" in log(machine), 30, "the reason")
    machine.run("systemctl", "stop", SERVICE)
    machine.run("systemctl", "reset-failed", SERVICE, check=False)
    set_options(machine, "listne = 3\n")
    machine.run("systemctl", "start", SERVICE, check=False)
    wait_until(lambda: "listne: there is no such option" in log(machine), 30, "the reason")
    machine.run("systemctl", "stop", SERVICE)
    machine.run("systemctl", "reset-failed", SERVICE, check=False)
    path = machine.file(CONFIG)
    path.write_text(path.read_text().replace("listne = 3\n", ""))

    set_options(machine, textwrap.dedent(commands(PAGE, "options")))
    machine.follow(PAGE, "start")
    wait_until(lambda: machine.works(), 60, "the node")
    machine.follow(PAGE, "use")
    machine.run("azekura", "status", "--wait", "60")

    # It is nobody in particular, and may nothing.
    pid = show(machine, "MainPID")
    status = machine.run("cat", f"/proc/{pid}/status").stdout
    assert re.search(r"^CapEff:\s0+$", status, re.M) and re.search(r"^CapBnd:\s0+$", status, re.M), status
    assert re.search(r"^NoNewPrivs:\s1$", status, re.M) and re.search(r"^Seccomp:\s2$", status, re.M), status
    owner = machine.run("stat", "--format", "%U %a", "/var/lib/azekura", "/run/azekura/nbd.sock").stdout.split()
    assert owner == ["azekura", "700", "azekura", "600"], owner
    exposure = machine.run("systemd-analyze", "security", "--no-pager", SERVICE).stdout
    level = float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", exposure).group(1))
    assert level <= EXPOSURE_MAX, exposure

    # A client writes; the process is killed and comes back, with the write.
    data = os.urandom(1 << 20)
    uri = machine.uri("vol1")
    with Client(uri) as client:
        client.write(8 << 20, data)
        client.flush()
    machine.run("systemctl", "kill", "--signal=KILL", SERVICE)
    wait_until(lambda: show(machine, "MainPID") not in ("0", pid) and machine.works(), 60, "the next process")
    with Client(uri) as client:
        assert client.read(8 << 20, len(data)) == data

    # An upgrade leaves the options and the process alone.
    before, options = show(machine, "MainPID"), path.read_text()
    told = install(machine).stdout
    assert "systemctl restart azekura" in told and show(machine, "MainPID") == before, told
    assert path.read_text() == options
    machine.follow(PAGE, "upgrade")
    with Client(uri) as client:
        assert client.read(8 << 20, len(data)) == data

    for page in ("azekura.1.gz", "azekura-node.1.gz", "azekura-volume-create.1.gz"):
        assert machine.file(f"/usr/share/man/man1/{page}").exists(), page
    machine.run("dpkg", "--remove", "azekura")
    assert machine.run("systemctl", "is-active", SERVICE, check=False).stdout.strip() == "inactive"
    assert path.exists() and machine.file("/var/lib/azekura/node.json").exists()
    told = machine.run("dpkg", "--purge", "azekura").stdout
    assert "stays" in told and not path.exists() and machine.file("/var/lib/azekura/node.json").exists(), told


def test_the_same_commit_gives_the_same_package(folder):
    first = run("sha256sum", PACKAGE).stdout.split()[0]
    kept = folder / "first.deb"
    shutil.copy(PACKAGE, kept)
    run("./dev", "package", within_s=3600)
    assert run("sha256sum", PACKAGE).stdout.split()[0] == first
