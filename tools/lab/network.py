"""A small network of machines inside this one: network namespaces on a bridge, every line shaped to a rate.

Each node has its own loopback and one line to the switch. Both directions of each line are shaped with a token bucket
(tc tbf), so a node sends at most `rate` and receives at most `rate`, as on a full-duplex port.
"""

import os
import subprocess
import time
from pathlib import Path

from .packages import Unavailable, ensure

TOOLS = ("ip:iproute2", "tc:iproute2", "nsenter:util-linux")
PREFIX = "azlab"
# Room for the largest packet that the stack hands over at once (64 KiB) and for a millisecond of a gigabit line.
BURST_BYTES = 192 * 1024
QUEUE = "20ms"


class Network:
    """`nodes` namespaces that reach each other at 10.77.0.1, 10.77.0.2, … over lines of `rate` (tc's notation; None:
    as fast as they go)."""

    def __init__(self, nodes, rate="1gbit"):
        self.nodes, self.rate = nodes, rate
        self.switch = f"{PREFIX}-{os.getpid()}-sw"
        self._made = []

    def namespace(self, node):
        """The name of node `node`'s namespace; nodes count from 1."""
        return f"{PREFIX}-{os.getpid()}-n{node}"

    def address(self, node):
        return f"10.77.0.{node}"

    def prefix(self, node):
        """Words that run a command on a node. It keeps this process's mounts: `ip netns exec` would give it a copy of
        them, and hold file systems that are unmounted later."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(node)}"]

    def start(self):
        if os.geteuid() != 0:
            raise Unavailable("needs root for network namespaces")
        ensure(TOOLS)
        remove_leftovers()
        try:
            self._build()
        except subprocess.CalledProcessError as error:
            self.stop()
            raise Unavailable(f"no shaped network here: {' '.join(error.cmd)}: {error.stderr.strip()}") from None

    def _build(self):
        self._add(self.switch)
        _run("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", self.switch, "link", "set", "switch", "up")
        for node in range(1, self.nodes + 1):
            inside, port = self.namespace(node), f"port{node}"
            self._add(inside)
            _run("ip", "-n", inside, "link", "add", "line", "type", "veth", "peer", "name", port, "netns", self.switch)
            _run("ip", "-n", inside, "address", "add", f"{self.address(node)}/24", "dev", "line")
            for device in ("lo", "line"):
                _run("ip", "-n", inside, "link", "set", device, "up")
            _run("ip", "-n", self.switch, "link", "set", port, "master", "switch")
            _run("ip", "-n", self.switch, "link", "set", port, "up")
            for namespace, device in ((inside, "line"), (self.switch, port)) if self.rate else ():
                shape = ["rate", self.rate, "burst", str(BURST_BYTES), "latency", QUEUE]
                _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *shape)

    def _add(self, namespace):
        _run("ip", "netns", "add", namespace)
        self._made.append(namespace)

    def stop(self):
        for namespace in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)
        self._made = []


def remove_leftovers():
    """Deletes namespaces of a lab that was killed: their names hold its process id, and no such process lives."""
    try:
        listed = _run("ip", "netns", "list")
    except (OSError, subprocess.CalledProcessError):
        return
    for line in listed.splitlines():
        parts = line.split()[0].split("-") if line.strip() else []
        if len(parts) == 3 and parts[0] == PREFIX and parts[1].isdigit() and not Path(f"/proc/{parts[1]}").exists():
            subprocess.run(["ip", "netns", "delete", line.split()[0]], capture_output=True)


def _run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measured_mib_s(network, seconds=1):
    """What the line between nodes 1 and 2 carries one way, in MiB/s, found with plain TCP: the proof of the shaping."""
    receiver = (
        "import socket,time\n"
        "s=socket.create_server(('0.0.0.0',7799));print('up',flush=True);c,_=s.accept();n=0;t=time.monotonic()\n"
        "while b:=c.recv(1<<20): n+=len(b)\n"
        "print(n/(time.monotonic()-t)/2**20,flush=True)"
    )
    sender = (
        "import socket,time\n"
        f"c=socket.create_connection(('{network.address(2)}',7799));e=time.monotonic()+{seconds};b=bytes(1<<18)\n"
        "while time.monotonic()<e: c.sendall(b)"
    )
    with subprocess.Popen(
        [*network.prefix(2), "python3", "-c", receiver], stdout=subprocess.PIPE, text=True
    ) as listening:
        try:
            listening.stdout.readline()
            time.sleep(0.1)
            subprocess.run([*network.prefix(1), "python3", "-c", sender], check=True, timeout=seconds + 30)
            return float(listening.stdout.readline())
        finally:
            if listening.poll() is None:
                listening.terminate()
