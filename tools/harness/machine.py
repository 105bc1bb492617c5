"""A small Debian that boots systemd in a container: a machine of its own, but for the kernel."""

import os
import shutil
import subprocess
from pathlib import Path

from .cluster import ROOT
from .document import commands
from .process import Process, wait_until
from .run import run

SUITE = "bookworm"
API = "unix:/var/lib/azekura/api.sock"


def base():
    """A Debian as debootstrap makes it, kept for the next run."""
    kept = ROOT / "target" / "machine"
    if not (kept / "usr/bin/systemctl").exists() or not (kept / "usr/sbin/adduser").exists():
        shutil.rmtree(kept, ignore_errors=True)
        packages = "systemd,systemd-sysv,dbus,adduser"
        run("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, kept, within_s=900)
    return kept


class Network:
    """A namespace with a bridge, which the machines' cables lead to, and nothing else."""

    def __init__(self, name):
        self.name = name
        run("ip", "netns", "add", name)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "link", "add", "br0", "type", "bridge")
        self.run("ip", "link", "set", "br0", "up")

    def words(self):
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    def run(self, *words):
        return run(*self.words(), *words)

    def close(self):
        subprocess.run(["ip", "netns", "delete", self.name], check=False)


class Machine:
    """A container with an init of its own; without a network it has a loopback alone."""

    def __init__(self, root, folder, name="machine", network=None, address=None):
        self.root, self.folder, self.name = root, folder, name
        self.network, self.address = network, address
        if not root.exists():
            run("cp", "-a", base(), root)
        self.boot()

    def boot(self):
        command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"]
        command += ["--machine", self.name, "--directory", self.root, "--property=DeviceAllow=block-* rwm"]
        command += ["--console=pipe", "--kill-signal=SIGRTMIN+3", "--resolv-conf=off", "--timezone=off"]
        command += ["--network-bridge=br0"] if self.network else ["--private-network"]
        outside = self.network.words() if self.network else []
        self.nspawn = Process([*outside, *command], self.folder / f"{self.name}.log")
        wait_until(self._begun, 60, f"the first process of {self.name}")
        if self.address:
            # Before any service wants to listen there.
            inside = ["nsenter", "--target", self.leader, "--net"]
            run(*inside, "ip", "address", "add", f"{self.address}/24", "dev", "host0")
            run(*inside, "ip", "link", "set", "host0", "up")
        wait_until(self._booted, 120, f"the systemd of {self.name}")

    def _begun(self):
        assert self.nspawn.alive, self.nspawn.log_tail()
        children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
        named = [child for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "systemd"]
        self.leader = named[0] if named else None
        return self.leader

    def _booted(self):
        assert self.nspawn.alive, self.nspawn.log_tail()
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def run(self, *words, **options):
        """Runs a command inside."""
        environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", f"AZEKURA_API={API}"]
        return run("nsenter", "--target", self.leader, "--all", *environment, *words, **options)

    def follow(self, page, name):
        """Does as root, in root's home, what a page says."""
        return self.run("sh", "-e", "-c", f"cd /root\n{commands(page, name)}")

    def file(self, path):
        """A file of the machine, as one of ours."""
        return self.root / path.lstrip("/")

    def put(self, source, path):
        shutil.copy(source, self.file(path))

    def uri(self, volume):
        """A volume at the node's socket, which lies in the machine's own /run."""
        return f"nbd+unix:///{volume}?socket=/proc/{self.leader}/root/run/azekura/nbd.sock"

    def works(self):
        """The node's API answers."""
        return self.run("azekura", "volume", "list", "--json", check=False).returncode == 0

    def crash(self):
        """Everything in it is killed at once."""
        os.kill(int(self.leader), 9)
        self.nspawn.child.wait(60)

    def close(self):
        self.nspawn.stop()
