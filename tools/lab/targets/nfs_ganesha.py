"""NFS-Ganesha: an NFS server in user space, reached with QEMU's NFS client."""

from tools.harness.process import Process, wait_until
from tools.harness.run import run
from tools.lab.network import Network

from .base import Target, make_files
from .nbd import Bridges

READY_WITHIN_S = 60

CONFIGURATION = """\
NFS_CORE_PARAM {{
    Protocols = 3, 4;
    Enable_NLM = false;
    Enable_RQUOTA = false;
}}
NFSv4 {{
    Graceless = true;
    RecoveryBackend = fs;
}}
NFS_KRB5 {{
    Active_krb5 = false;
}}
EXPORT {{
    Export_Id = 1;
    Path = {folder}/export;
    Pseudo = /lab;
    Access_Type = RW;
    Squash = No_root_squash;
    SecType = sys;
    Protocols = 3, 4;
    Transports = TCP;
    FSAL {{
        name = VFS;
    }}
}}
"""


class NfsGanesha(Target):
    name = "nfs-ganesha"
    title = "NFS-Ganesha"
    about = (
        "An export of files over NFSv3, the server and its port mapper in a network namespace of their own; fio's NBD "
        "client through a qemu-nbd with libnfs, which is part of the path and not counted as server. One copy, no "
        "checksums."
    )
    tools = (
        "fio:fio",
        "ganesha.nfsd:nfs-ganesha",
        "/usr/lib/*/ganesha/libfsalvfs.so:nfs-ganesha-vfs",
        "rpcbind:rpcbind",
        "nsenter:util-linux",
        "qemu-nbd:qemu-utils",
        "/usr/lib/*/qemu/block-nfs.so:qemu-block-extra",
    )
    versions_of = ("nfs-ganesha", "libnfs13")
    variants = {"nfs-ganesha": {}}
    start_s = 5

    def __init__(self, place, **options):
        super().__init__(place, **options)
        # NFSv3 clients ask the port mapper on its well-known port: in a namespace it is in nobody's way.
        self.home = Network(1, rate=None)
        self.port_mapper = self.server = self.bridges = None

    def start(self):
        self.home.start()
        files = make_files(self.folder / "export", self.place.volumes, self.place.volume_bytes)
        assert files
        # The port mapper's socket is in /run, which the machine's own may use as well: these two see another /run.
        private = "mount -t tmpfs tmpfs /run && exec rpcbind -f"
        command = [*self.home.prefix(1), "unshare", "--mount", "--propagation=private", "sh", "-c", private]
        self.port_mapper = Process(command, self.folder / "rpcbind.log")
        wait_until(lambda: self._listed("portmapper"), READY_WITHIN_S, "the port mapper")
        configuration = self.folder / "ganesha.conf"
        configuration.write_text(CONFIGURATION.format(folder=self.folder))
        command = ["nsenter", "--target", self.port_mapper.pid, "--mount", "--net", "ganesha.nfsd", "-F"]
        command += ["-f", configuration, "-L", self.folder / "ganesha.log", "-p", self.folder / "ganesha.pid"]
        self.server = Process(command, self.folder / "ganesha.out")
        wait_until(lambda: self._listed("mountd") and self._listed("nfs"), READY_WITHIN_S, "NFS-Ganesha")
        self.bridges = Bridges(self.folder, self.home.prefix(1))

    def _listed(self, service):
        for process in (self.port_mapper, self.server):
            if process is not None and not process.alive:
                raise RuntimeError(f"{process.command} ended\n{process.log_tail()}")
        listed = run(*self.home.prefix(1), "rpcinfo", "-p", "127.0.0.1", check=False).stdout
        return any(line.split()[-1] == service for line in listed.splitlines() if line.split())

    def engine(self, volume=0):
        return ["--ioengine=nbd", f"--uri={self.uri(volume)}"]

    def uri(self, volume=0):
        return self.bridges.uri(volume, f"nfs://127.0.0.1{self.folder}/export/{volume}.raw")

    def processes(self):
        return [process for process in (self.port_mapper, self.server) if process is not None]

    def stop(self):
        if self.bridges is not None:
            self.bridges.stop()
        for process in reversed(self.processes()):
            process.kill()
        self.home.stop()
