"""The package on a small Debian that boots systemd in a container: installed, started, used, upgraded and removed.

Not part of the tests that `./dev test` collects: `./dev package test` makes the package and runs this.
"""

import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest

from tools.harness.cluster import ROOT
from tools.harness.document import commands
from tools.harness.nbd import Client
from tools.harness.process import Process, wait_until
from tools.harness.run import run

PACKAGE = os.environ.get("AZEKURA_PACKAGE")
PAGE = ROOT / "docs" / "operations" / "service.md"
SUITE = "bookworm"
SERVICE = "azekura.service"
CONFIG = "/etc/azekura/config.toml"
API = "unix:/var/lib/azekura/api.sock"
# What systemd-analyze calls the exposure of a service: 0 is the least, 10 the most; below 2 is "OK" at the least.
EXPOSURE_MAX = 2.0

pytestmark = [pytest.mark.root, pytest.mark.skipif(not PACKAGE, reason="./dev package test makes the package first")]


class Machine:
    """A container with an init of its own, no network but a loopback, and the machine's kernel."""

    def __init__(self, root, folder):
        self.root = root
        command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network"]
        command += ["--machine", "azekura-package", "--directory", root, "--property=DeviceAllow=block-* rwm"]
        command += ["--console=pipe", "--kill-signal=SIGRTMIN+3", "--resolv-conf=off", "--timezone=off"]
        self.nspawn = Process(command, folder / "machine.log")
        wait_until(self._booted, 120, "the container's systemd")

    def _leader(self):
        children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
        named = [child for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "systemd"]
        return named[0] if named else None

    def _booted(self):
        assert self.nspawn.alive, self.nspawn.log_tail()
        if not (leader := self._leader()):
            return False
        self.leader = leader
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def run(self, *words, **options):
        environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", f"AZEKURA_API={API}"]
        return run("nsenter", "--target", self.leader, "--all", *environment, *words, **options)

    def follow(self, name):
        """Does what the page says."""
        return self.run("sh", "-e", "-c", f"cd /root\n{commands(PAGE, name)}")

    def show(self, name):
        return self.run("systemctl", "show", "--value", "--property", name, SERVICE).stdout.strip()

    def log(self):
        return self.run("journalctl", "--no-pager", "--unit", SERVICE).stdout

    def close(self):
        self.nspawn.stop()


@pytest.fixture(scope="module")
def base():
    """A Debian as debootstrap makes it, kept for the next run."""
    kept = Path("target/machine").absolute()
    if not (kept / "usr/bin/systemctl").exists():
        shutil.rmtree(kept, ignore_errors=True)
        run("debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus", SUITE, kept, within_s=900)
    return kept


@pytest.fixture
def machine(base, folder):
    root = folder / "root"
    run("cp", "-a", base, root)
    shutil.copy(PACKAGE, root / "root" / "azekura.deb")
    booted = Machine(root, folder)
    yield booted
    booted.close()


def install(machine):
    return machine.follow("install")


def set_options(machine, text):
    path = machine.root / CONFIG[1:]
    path.write_text(path.read_text() + text)


def works(machine):
    asked = machine.run("azekura", "volume", "list", "--json", check=False)
    return asked.returncode == 0


def test_from_installed_to_removed(machine):
    told = install(machine).stdout
    assert "systemctl enable --now azekura" in told, told
    assert machine.show("ActiveState") == "inactive", "nothing runs before it is told what to do"
    assert machine.run("azekura", "config", "check").stdout.startswith(CONFIG)

    # A start that can't be says why.
    machine.run("systemctl", "start", SERVICE, check=False)
    wait_until(lambda: "where is the cluster's configuration?" in machine.log(), 30, "the reason")
    machine.run("systemctl", "stop", SERVICE)
    machine.run("systemctl", "reset-failed", SERVICE, check=False)
    set_options(machine, "listne = 3\n")
    machine.run("systemctl", "start", SERVICE, check=False)
    wait_until(lambda: "listne: there is no such option" in machine.log(), 30, "the reason")
    machine.run("systemctl", "stop", SERVICE)
    machine.run("systemctl", "reset-failed", SERVICE, check=False)
    path = machine.root / CONFIG[1:]
    path.write_text(path.read_text().replace("listne = 3\n", ""))

    set_options(machine, textwrap.dedent(commands(PAGE, "options")))
    machine.follow("start")
    wait_until(lambda: works(machine), 60, "the node")
    machine.follow("use")
    machine.run("azekura", "status", "--wait", "60")

    # It is nobody in particular, and may nothing.
    pid = machine.show("MainPID")
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
    socket = machine.root / "run/azekura/nbd.sock"
    assert not socket.exists(), "the container's /run is its own"
    socket = Path(f"/proc/{machine.leader}/root/run/azekura/nbd.sock")
    uri = f"nbd+unix:///vol1?socket={socket}"
    with Client(uri) as client:
        client.write(8 << 20, data)
        client.flush()
    machine.run("systemctl", "kill", "--signal=KILL", SERVICE)
    wait_until(lambda: machine.show("MainPID") not in ("0", pid) and works(machine), 60, "the next process")
    with Client(uri) as client:
        assert client.read(8 << 20, len(data)) == data

    # An upgrade leaves the options and the process alone.
    before, options = machine.show("MainPID"), path.read_text()
    told = install(machine).stdout
    assert "systemctl restart azekura" in told and machine.show("MainPID") == before, told
    assert path.read_text() == options
    machine.follow("upgrade")
    with Client(uri) as client:
        assert client.read(8 << 20, len(data)) == data

    for page in ("azekura.1.gz", "azekura-node.1.gz", "azekura-volume-create.1.gz"):
        assert (machine.root / "usr/share/man/man1" / page).exists(), page
    machine.run("dpkg", "--remove", "azekura")
    assert machine.run("systemctl", "is-active", SERVICE, check=False).stdout.strip() == "inactive"
    assert path.exists() and (machine.root / "var/lib/azekura/node.json").exists()
    told = machine.run("dpkg", "--purge", "azekura").stdout
    assert "stays" in told and not path.exists() and (machine.root / "var/lib/azekura/node.json").exists(), told


def test_the_same_commit_gives_the_same_package(folder):
    first = run("sha256sum", PACKAGE).stdout.split()[0]
    kept = folder / "first.deb"
    shutil.copy(PACKAGE, kept)
    run("./dev", "package", within_s=3600)
    assert run("sha256sum", PACKAGE).stdout.split()[0] == first
