"""docs/operations/three-machines.md, followed on three machines in containers; then one of them fails.

Not part of the tests that `./dev test` collects: `./dev package test` makes the package and runs this.
"""

import contextlib
import os
import textwrap

import pytest

from tools.harness.cluster import ROOT
from tools.harness.document import commands
from tools.harness.machine import Machine, Network
from tools.harness.nbd import Client
from tools.harness.process import wait_until
from tools.harness.run import run

PACKAGE = os.environ.get("AZEKURA_PACKAGE")
PAGE = ROOT / "docs" / "operations" / "three-machines.md"
SERVICE_PAGE = ROOT / "docs" / "operations" / "service.md"
MIB = 1 << 20

pytestmark = [pytest.mark.root, pytest.mark.skipif(not PACKAGE, reason="./dev package test makes the package first")]


@pytest.fixture
def machines(folder):
    run("apt-get", "download", "-qq", "etcd-server", cwd=folder)
    etcd = next(folder.glob("etcd-server_*.deb"))
    with contextlib.ExitStack() as undo:
        network = Network(f"azk{os.getpid()}")
        undo.callback(network.close)
        made = []
        for number in (1, 2, 3):
            name = f"m{number}"
            machine = Machine(folder / name, folder, name, network, f"10.0.0.{number}")
            undo.callback(machine.close)
            machine.put(PACKAGE, "/root/azekura.deb")
            machine.put(etcd, "/root/etcd.deb")
            machine.run("dpkg", "--install", "/root/etcd.deb")
            machine.follow(SERVICE_PAGE, "install")
            made.append(machine)
        yield made


def own(text, number, shared):
    """What the page says for m1, for another machine: the lines that all share stay as they are."""
    lines = textwrap.dedent(text).splitlines(keepends=True)
    change = lambda line: line.replace("10.0.0.1", f"10.0.0.{number}").replace("m1", f"m{number}")  # noqa: E731
    return "".join(line if line.startswith(shared) else change(line) for line in lines)


def opens(uri):
    try:
        Client(uri).close()
    except ConnectionError:
        return False
    return True


def append(machine, path, text):
    with open(machine.file(path), "a") as file:
        file.write(text)


def test_three_machines_become_a_cluster_that_outlasts_one(machines):
    for number, machine in enumerate(machines, 1):
        append(machine, "/etc/default/etcd", own(commands(PAGE, "etcd"), number, "ETCD_INITIAL_CLUSTER"))
        options = own(commands(PAGE, "options"), number, "config")
        append(machine, "/etc/azekura/config.toml", options)
    for machine in machines:
        machine.follow(PAGE, "etcd-start")
    first = machines[0]
    first.follow(PAGE, "first")
    for number, machine in enumerate(machines[1:], 2):
        another = lambda name, number=number: commands(PAGE, name).replace("m2", f"m{number}")  # noqa: E731
        first.run("sh", "-e", "-c", f"cd /root\n{another('token')}")
        machine.put(first.file(f"/root/m{number}.token"), f"/root/m{number}.token")
        machine.run("sh", "-e", "-c", f"cd /root\n{another('bring')}")
        append(machine, "/etc/azekura/config.toml", textwrap.dedent(commands(PAGE, "join")))
        machine.follow(PAGE, "next")
    listed = machines[2].follow(PAGE, "volume").stdout
    assert all(f"m{number}" in listed for number in (1, 2, 3)), listed
    status = first.run("azekura", "status").stdout
    assert "tls" in status and "grants" in status, status

    data = os.urandom(MIB)
    with Client(first.uri("vol1")) as client:
        client.write(0, data)
        client.flush()
        # A machine is gone, with its member of etcd and its node.
        machines[2].crash()
        client.write(MIB, data)
        client.flush()
        assert client.read(0, MIB) == data
    wait_until(lambda: "m3" in first.run("azekura", "status", check=False).stdout, 60, "that m3 is missed")
    # It comes back without its token, and has what it missed.
    machines[2].boot()
    wait_until(machines[2].works, 120, "m3")
    assert machines[2].run("systemctl", "is-active", "etcd").stdout.strip() == "active"
    first.run("azekura", "status", "--wait", "120")
    machines[1].crash()
    # Attaching waits for etcd, which elects another leader.
    wait_until(lambda: opens(machines[2].uri("vol1")), 60, "the volume on m3")
    with Client(machines[2].uri("vol1")) as client:
        assert client.read(0, MIB) == data and client.read(MIB, MIB) == data
