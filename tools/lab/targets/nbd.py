"""NBD servers without copies: the yardsticks for what a volume over a socket can give, and the bridge to NBD."""

from tools.harness.process import Process, wait_until

from .base import Target, make_files

READY_WITHIN_S = 30


def start_server(command, socket, log, environment=None):
    """Starts an NBD server and waits for its socket."""
    process = Process(command, log, environment)

    def listening():
        if not process.alive:
            raise RuntimeError(f"{command[0]} ended at its start\n{process.log_tail()}")
        return socket.exists()

    wait_until(listening, READY_WITHIN_S, f"{command[0]}'s socket")
    return process


class Bridges:
    """qemu-nbd processes that make images of other protocols into NBD exports, each on first use.

    They are clients of the target, with the protocol's own library in them, and not accounted to it. `prefix` is
    what a client's command begins with.
    """

    def __init__(self, folder, prefix=()):
        self.folder, self.prefix = folder, list(prefix)
        self.processes = {}

    def uri(self, volume, image):
        """The NBD URI of `image`, which is qemu's name of volume number `volume`."""
        socket = self.folder / f"bridge{volume}.nbd"
        if volume not in self.processes:
            command = [*self.prefix, "qemu-nbd", "--cache=none", "--persistent", "--shared=0", "--format=raw"]
            command += [f"--socket={socket}", image]
            self.processes[volume] = start_server(command, socket, self.folder / f"bridge{volume}.log")
        return f"nbd+unix:///?socket={socket}"

    def stop(self):
        for process in self.processes.values():
            process.kill()


class NbdTarget(Target):
    """A target that is reached over unix sockets, one server process a volume or one for all."""

    def __init__(self, place, **options):
        super().__init__(place, **options)
        self.servers = []

    def engine(self, volume=0):
        return ["--ioengine=nbd", f"--uri={self.uri(volume)}"]

    def uri(self, volume=0):
        return f"nbd+unix:///?socket={self.socket(volume)}"

    def socket(self, volume):
        return self.folder / f"{volume}.nbd"

    def processes(self):
        return self.servers

    def stop(self):
        for server in self.servers:
            server.kill()


class QemuNbd(NbdTarget):
    name = "qemu-nbd"
    title = "qemu-nbd"
    about = (
        "qemu-nbd on a raw file with io_uring and without the page cache, over a unix socket. One copy, no checksums: "
        "the yardstick for a volume over NBD."
    )
    tools = ("fio:fio", "qemu-nbd:qemu-utils")
    versions_of = ("qemu-utils",)
    variants = {"qemu-nbd": {}}

    def start(self):
        for number, path in enumerate(make_files(self.folder, self.place.volumes, self.place.volume_bytes)):
            socket = self.socket(number)
            command = ["qemu-nbd", "--cache=none", "--aio=io_uring", "--format=raw", "--persistent", "--shared=0"]
            command += ["--discard=unmap", f"--socket={socket}", path]
            self.servers.append(start_server(command, socket, self.folder / "log"))


class NbdkitMemory(NbdTarget):
    name = "nbdkit-memory"
    title = "nbdkit memory"
    about = (
        "nbdkit's memory plugin over a unix socket: no disk at all, the ceiling of fio's NBD client. Nothing is kept."
    )
    tools = ("fio:fio", "nbdkit:nbdkit")
    versions_of = ("nbdkit",)
    variants = {"nbdkit-memory": {}}

    def disk_bytes(self):
        return 0

    def start(self):
        for number in range(self.place.volumes):
            socket = self.socket(number)
            command = ["nbdkit", "--foreground", f"--unix={socket}", "memory", f"size={self.place.volume_bytes}"]
            self.servers.append(start_server(command, socket, self.folder / "log"))
