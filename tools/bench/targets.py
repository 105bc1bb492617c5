"""What the benchmark runs against. Each target is started, filled, measured and stopped."""

import secrets
from pathlib import Path

from tools.harness.cluster import Cluster
from tools.harness.device import is_initialised
from tools.harness.nbd import Client
from tools.harness.process import Process, wait_until

VOLUME = "vol1"


class Target:
    """A thing that fio can be pointed at, and the processes whose CPU time and memory are its price."""

    name = ""

    def start(self):
        """Makes it ready for fio."""

    def engine(self):
        """fio's arguments that name the target."""
        raise NotImplementedError

    def processes(self):
        """The server processes, exactly."""
        return []

    def details(self):
        """What a reader must know to repeat it: command lines."""
        return {"commands": [process.command for process in self.processes()]}

    def stop(self):
        """Ends its processes."""

    def cpu_seconds(self):
        return sum(process.cpu_seconds() for process in self.processes())

    def resident_bytes(self):
        return [process.resident_bytes() for process in self.processes()]


class Azekura(Target):
    """A volume with two copies on a fresh cluster of three node processes, over the first one's unix socket."""

    name = "azekura"

    def __init__(
        self, folder, volume_size="10GiB", device_size="8GiB", config="embedded", program=None, transport=None
    ):
        self.cluster = Cluster(
            Path(folder) / self.name,
            nodes=3,
            config=config,
            device_size=device_size,
            program=program,
            transport=transport,
        )
        self.volume_size = volume_size

    @classmethod
    def asked_for(cls, folder, options, volume_size):
        """As the options of the command line have it."""
        config = "etcd" if options.etcd else "embedded"
        return cls(folder, volume_size, options.device_size, config, transport=options.transport)

    def start(self):
        self.cluster.start()
        self.make_volume()
        # A new device is written with zeros once, in the background: that is no part of any test.
        wait_until(self.devices_initialised, 1800, "the devices' first writing")

    def make_volume(self):
        self.cluster.create_volume(VOLUME, self.volume_size, copies=2)

    def devices_initialised(self):
        return all(is_initialised(node) for node in self.cluster.nodes)

    def engine(self):
        return ["--ioengine=nbd", f"--uri={self.cluster.first.uri(VOLUME)}"]

    def processes(self):
        nodes = [node.process for node in self.cluster.nodes]
        return nodes + ([self.cluster.etcd] if self.cluster.etcd else [])

    def stop(self):
        self.cluster.destroy()


class Before(Azekura):
    """The same with the binary of another build, to see what a change costs or wins."""

    name = "before"


class Encrypted(Azekura):
    """The same with an encrypted volume, to see what the cipher takes (docs/decisions/0038-encrypted-volumes.md)."""

    name = "encrypted"

    def start(self):
        path = self.cluster.folder / "kek"
        path.write_text(f"1 {secrets.token_hex(32)}\n", encoding="ascii")
        path.chmod(0o600)
        self.cluster.node_options += ("--key-file", path)
        super().start()

    def make_volume(self):
        self.cluster.cli("volume", "create", VOLUME, self.volume_size, "--copies", 2, "--encrypt")
        self.cluster.wait_healthy()


class Attached(Azekura):
    """The same whose volume is at home where it is attached (docs/decisions/0062-home-attached.md)."""

    name = "attached"

    def make_volume(self):
        self.cluster.cli("class", "create", "near", "--copies", 2, "--home", "attached")
        self.cluster.cli("volume", "create", VOLUME, self.volume_size, "--class", "near")
        self.cluster.wait_healthy()
        # Its first client says where home is.
        with Client(self.cluster.first.uri(VOLUME)):
            wait_until(self.is_at_home, 60, "the volume's way home")

    def is_at_home(self):
        home = self.cluster.json("volume", "show", VOLUME).get("home")
        return home is not None and home["groups_there"] == home["groups"]


class QemuNbd(Target):
    """qemu-nbd on a raw file, without copies and without checksums: the yardstick."""

    name = "qemu-nbd"

    def __init__(self, folder, file_size):
        self.folder = Path(folder) / "qemu-nbd"
        self.file = self.folder / "disk.raw"
        self.socket = self.folder / "nbd"
        self.file_size = file_size
        self.process = None

    def start(self):
        self.folder.mkdir(parents=True)
        with open(self.file, "wb") as file:
            file.truncate(self.file_size)
        command = ["qemu-nbd", "--cache=none", "--aio=io_uring", "--format=raw", "--persistent", "--shared=16"]
        command += [f"--export-name={VOLUME}", f"--socket={self.socket}", self.file]
        self.process = Process(command, self.folder / "log")

        def listening():
            assert self.process.alive, f"qemu-nbd ended\n{self.process.log_tail()}"
            return self.socket.exists()

        wait_until(listening, 20, "qemu-nbd's socket")

    def engine(self):
        return ["--ioengine=nbd", f"--uri=nbd+unix:///{VOLUME}?socket={self.socket}"]

    def processes(self):
        return [self.process]

    def stop(self):
        if self.process is not None and self.process.alive:
            self.process.stop()


class Raw(Target):
    """The file itself through libaio: what the disk under all of them gives."""

    name = "raw"

    def __init__(self, folder, file_size):
        self.file = Path(folder) / "raw" / "disk.raw"
        self.file_size = file_size

    def start(self):
        self.file.parent.mkdir(parents=True)
        with open(self.file, "wb") as file:
            file.truncate(self.file_size)

    def engine(self):
        return ["--ioengine=libaio", f"--filename={self.file}"]
