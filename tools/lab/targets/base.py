"""The interface of a target: a storage system that the lab can start, point clients at, account for and stop.

A target is one file in this folder with one class. To add a peer: subclass Target, fill in the class attributes, and
write start, engine and, if it has server processes, pids. What it cannot do it says in `unsupported`.
"""

from dataclasses import dataclass
from pathlib import Path

from tools.lab.packages import version_of


@dataclass(frozen=True)
class Place:
    """Where and for what a target is started: its empty folder, the volumes that clients will use, the network.

    `written_share` is the share of the volumes that clients will come to write; thin targets plan their space by it.
    """

    folder: Path
    volumes: int
    volume_bytes: int
    network: object = None
    written_share: float = 1.0

    @property
    def data_bytes(self):
        return int(self.volumes * self.volume_bytes * self.written_share)


class Target:
    """A storage system with `place.volumes` volumes of `place.volume_bytes` each, once started."""

    name = ""
    title = ""
    # One sentence for the report: how clients reach it and what a finished write means.
    about = ""
    # "command:package" or "/pattern:package": what must be installed.
    tools = ()
    # Debian packages whose versions the results note.
    versions_of = ()
    # Name on the command line → options of the constructor.
    variants = {}
    # Seconds that a start takes, and each device more, for the estimate of a run's length only.
    start_s, start_s_a_device = 1, 0.5
    # Device counts other than one make sense for it (experiment E2).
    counts_devices = False
    # It runs with its nodes in network namespaces (experiment E3 over 1 GbE).
    networked = False

    def __init__(self, place, copies=1, nodes=1, devices=1):
        self.place = place
        self.folder = place.folder
        self.copies, self.nodes, self.devices = copies, nodes, devices

    def unsupported(self):
        """Why this place or these options cannot be had from the target, or None."""
        if self.place.network is not None and not self.networked:
            return "has no servers on other machines"
        if self.devices != 1 and not self.counts_devices:
            return "has one device"
        return None

    def disk_bytes(self):
        """How much disk it may come to use."""
        return self.place.data_bytes * self.copies

    def start(self):
        """Makes it ready for clients, with empty volumes."""

    def engine(self, volume=0):
        """fio's arguments that name a volume."""
        raise NotImplementedError

    def client_prefix(self):
        """Words before a client's command: environment, network namespace."""
        return []

    def path(self, volume=0):
        """A file of this machine that is the volume, if there is one."""
        return None

    def uri(self, volume=0):
        """The volume's NBD URI, if it has no path: file systems are put on it through nbdfuse."""
        raise NotImplementedError

    def processes(self):
        """Its server processes that the lab started: those that a user of the system has to run. No client's."""
        return []

    def pids(self):
        """The ids of all its server processes, exactly, for the accounts."""
        return [process.pid for process in self.processes()]

    def ended(self):
        """What is left of server processes that ended by themselves: the ends of their logs."""
        gone = [process for process in self.processes() if not process.alive]
        return "\n".join(f"{process.command[0]} ended: {process.log_tail(8)}" for process in gone)

    def counters(self):
        """Counters that only rise, by name, for the figures over time: cache_hits, cache_misses, and for device N
        read_N and written_N in bytes."""
        return {}

    def commands(self):
        """The command lines of its processes, for whoever wants to repeat it."""
        return [process.command for process in self.processes()]

    def versions(self):
        return {package: version_of(package) for package in self.versions_of}

    def stop(self):
        """Ends its processes. Its folder is deleted afterwards."""


def make_files(folder, count, size):
    """`count` sparse files of `size` bytes: 0.raw, 1.raw, …"""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.raw" for number in range(count)]
    for path in paths:
        with open(path, "wb") as file:
            file.truncate(size)
    return paths
