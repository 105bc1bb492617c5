"""One network namespace a node, a veth pair each, one bridge; links that can be cut, one way or both."""

import json

from tools.harness.run import run

BRIDGE = "torment0"
CLIENT_ADDRESS = "10.77.0.1"
# Packets are always dropped where they arrive: the sender's kernel must not learn of the cut.
_RULES = "add table inet cut; add chain inet cut input { type filter hook input priority 0; }"


def ip(*words):
    run("ip", *words)


def make_bridge():
    """The bridge lies in the namespace of the clients, who can reach every node."""
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{CLIENT_ADDRESS}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")


class Machine:
    """A network namespace with one interface, `eth0`."""

    def __init__(self, number):
        self.name = f"m{number}"
        self.address = f"10.77.0.{10 + number}"
        self.port = f"port{number}"
        ip("netns", "add", self.name)
        ip("link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self.port, "master", BRIDGE, "up")
        for words in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            ip("-n", self.name, *words)
        self._nft(_RULES)

    def inside(self, command):
        """The command that runs `command` in this namespace, under the same process id that it is started with."""
        return ["nsenter", f"--net=/run/netns/{self.name}", "--", *map(str, command)]

    def _nft(self, text):
        run(*self.inside(["nft", text]))

    def unplug(self):
        """Nothing gets in or out."""
        ip("link", "set", self.port, "down")

    def plug(self):
        ip("link", "set", self.port, "up")

    def ignore(self, other):
        """Drops what comes from the other machine; the way back stays as it is."""
        self._nft(f"add rule inet cut input ip saddr {other.address} drop")

    def ignore_everybody(self):
        self._nft('add rule inet cut input iifname "eth0" drop')

    def listen_again(self):
        """Ends every `ignore`."""
        self._nft("flush chain inet cut input")

    def bytes_on_the_wire(self):
        """(received, sent) by the machine's interface since it was made, headers and all."""
        # Seen from the bridge's side of the pair, where in and out are the other way round.
        told = run("ip", "-json", "-statistics", "link", "show", "dev", self.port).stdout
        counters = json.loads(told)[0]["stats64"]
        return counters["tx"]["bytes"], counters["rx"]["bytes"]
