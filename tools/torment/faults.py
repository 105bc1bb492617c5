"""The faults: each is done, lasts a while and is undone. What comes when is drawn from a seed."""

import signal
import time
from dataclasses import dataclass

# A device that has answered nothing for so long is out of service (`azekura node --device-timeout`).
DEVICE_TIMEOUT_S = 10

CATALOGUE = {}


@dataclass
class Fault:
    """Something that is broken now; `undo` mends it."""

    kind: str
    target: str
    undo: object


def fault(weight):
    """Registers a function (rig, random) → (target, undo) under its own name."""

    def register(function):
        CATALOGUE[function.__name__] = (weight, function)
        return function

    return register


def inject(kind, rig, random):
    target, undo = CATALOGUE[kind][1](rig, random)
    return Fault(kind, target, undo)


def draw_kind(random, kinds=None):
    names = sorted(kinds or CATALOGUE)
    return random.choices(names, [CATALOGUE[name][0] for name in names])[0]


def duration(random):
    """Half a second to eight, short ones more often: the limits of leases and patience lie between 0.75 s and 3 s."""
    return 0.2 + 8 * random.random() ** 2


def a_node(rig, random):
    return random.choice([node for node in rig.nodes if node.alive])


def start_again(node):
    if not node.alive:
        node.start()


@fault(weight=5)
def kill(rig, random):
    """SIGKILL to a node."""
    node = a_node(rig, random)
    node.kill()
    return node.name, lambda: start_again(node)


@fault(weight=1)
def kill_two(rig, random):
    """SIGKILL to two nodes at once: some groups lose all copies for a while."""
    nodes = random.sample([node for node in rig.nodes if node.alive], 2)
    for node in nodes:
        node.process.signal(signal.SIGKILL)
    for node in nodes:
        node.kill()
    return "+".join(node.name for node in nodes), lambda: [start_again(node) for node in nodes]


@fault(weight=1)
def kill_all(rig, random):
    """SIGKILL to every node."""
    rig.kill_all()
    return "all nodes", lambda: [start_again(node) for node in rig.nodes]


@fault(weight=5)
def stand_still(rig, random):
    """SIGSTOP: the process goes on later as if nothing had happened."""
    node = a_node(rig, random)
    node.process.pause()
    return node.name, node.process.resume


@fault(weight=2)
def restart(rig, random):
    """SIGTERM: a planned stop."""
    node = a_node(rig, random)
    node.stop()
    return node.name, lambda: start_again(node)


@fault(weight=4)
def cut_off(rig, random):
    """A machine's link is down: nothing gets in or out, etcd's member on it included."""
    machine = random.choice(rig.machines)
    machine.unplug()
    return machine.name, machine.plug


@fault(weight=3)
def deaf(rig, random):
    """A machine sends, but receives nothing."""
    machine = random.choice(rig.machines)
    machine.ignore_everybody()
    return machine.name, machine.listen_again


@fault(weight=3)
def mute(rig, random):
    """A machine receives, but the other machines get nothing from it."""
    machine, others = _one_and_others(rig, random)
    for other in others:
        other.ignore(machine)
    return machine.name, lambda: [other.listen_again() for other in others]


@fault(weight=3)
def one_way(rig, random):
    """One machine's packets no longer reach one other."""
    machine, others = _one_and_others(rig, random)
    other = random.choice(others)
    other.ignore(machine)
    return f"{machine.name}>{other.name}", other.listen_again


@fault(weight=3)
def both_ways(rig, random):
    """Two machines do not hear each other; everybody else hears both."""
    machine, others = _one_and_others(rig, random)
    other = random.choice(others)
    other.ignore(machine)
    machine.ignore(other)
    return f"{machine.name}|{other.name}", lambda: [machine.listen_again(), other.listen_again()]


def _one_and_others(rig, random):
    machine = random.choice(rig.machines)
    return machine, [other for other in rig.machines if other is not machine]


@fault(weight=2)
def device_full(rig, random):
    """The file system that a node's device lies in has no byte left; the log is preallocated, the saved map is not."""
    node = random.choice(rig.nodes)
    node.fill()
    return node.name, node.empty


@fault(weight=3)
def device_hangs(rig, random):
    """A device neither does nor refuses what it is asked for, for less time than takes it out of service."""
    node = _node_whose_device_can_hang(rig, random)
    node.hanging.hang()
    return node.name, node.hanging.answer


@fault(weight=1)
def device_hangs_for_long(rig, random):
    """A device hangs until it is out of service; when it answers it comes back by itself."""
    node = _node_whose_device_can_hang(rig, random)
    node.hanging.hang()
    time.sleep(DEVICE_TIMEOUT_S + 2)
    return node.name, node.hanging.answer


def _node_whose_device_can_hang(rig, random):
    return random.choice([node for node in rig.nodes if node.alive and node.hanging is not None])


@fault(weight=2)
def etcd_leader(rig, random):
    """SIGKILL to the leader of etcd."""
    member = rig.etcd_leader() or random.choice([member for member in rig.members if member.alive])
    member.process.kill()
    return member.name, lambda: start_member(member)


@fault(weight=1)
def etcd_quorum(rig, random):
    """SIGKILL to two of the three members of etcd: nothing can be reconfigured until one is back."""
    members = random.sample([member for member in rig.members if member.alive], 2)
    for member in members:
        member.process.kill()
    return "+".join(member.name for member in members), lambda: [start_member(member) for member in members]


def start_member(member):
    if not member.alive:
        member.start()
