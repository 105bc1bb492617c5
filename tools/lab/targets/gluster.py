"""Gluster from Debian's packages: one management daemon, two bricks, volumes as files on the FUSE mount."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tools.harness.process import Process, wait_until
from tools.lab.packages import Unavailable

from .base import Target, make_files

READY_WITHIN_S = 60
# Gluster takes no brick on 127.0.0.1; any other address of the loopback is the machine's own.
HOST = "127.0.0.2"
PORT = 24007
NAME = "lab"
GROUPS = Path("/var/lib/glusterd/groups")

MANAGEMENT = """\
volume management
    type mgmt/glusterd
    option working-directory {folder}/work
    option run-directory {folder}/run
    option glusterd-sockfile {folder}/glusterd.socket
    option transport-type socket
    option transport.socket.listen-port {port}
    option transport.socket.bind-address {host}
    option ping-timeout 0
end-volume
"""


class Gluster(Target):
    name = "gluster"
    title = "Gluster"
    about = (
        "Two bricks on one machine, a volume of two copies with Gluster's own settings for images of "
        "machines (group virt: sharding, direct I/O); fio with libaio and O_DIRECT on files of the FUSE mount, whose "
        "process is a client."
    )
    tools = ("fio:fio", "glusterd:glusterfs-server", "gluster:glusterfs-cli", "glusterfs:glusterfs-client")
    versions_of = ("glusterfs-server",)
    variants = {"gluster": {"copies": 2}}
    start_s = 8

    def __init__(self, place, **options):
        super().__init__(place, **options)
        self.server = None
        self.mount = self.folder / "mount"
        self.files = []

    def start(self):
        if os.geteuid() != 0:
            raise Unavailable("needs root for its daemons and the FUSE mount")
        for name in ("work", "run", *self._bricks()):
            (self.folder / name).mkdir()
        volfile = self.folder / "glusterd.vol"
        volfile.write_text(MANAGEMENT.format(folder=self.folder, port=PORT, host=HOST))
        command = ["glusterd", "--no-daemon", f"--volfile={volfile}", f"--log-file={self.folder / 'glusterd.log'}"]
        self.server = Process([*command, f"--pid-file={self.folder / 'glusterd.pid'}"], self.folder / "glusterd.out")
        wait_until(self._answers, READY_WITHIN_S, "glusterd")
        # The settings' file lies beside the packaged daemon's own data; ours looks for it in its working directory.
        shutil.copytree(GROUPS, self.folder / "work" / "groups", dirs_exist_ok=True)
        bricks = [f"{HOST}:{self.folder / name}" for name in self._bricks()]
        self._gluster("volume", "create", NAME, "replica", self.copies, *bricks, "force")
        self._gluster("volume", "set", NAME, "group", "virt")
        # One machine has no quorum of machines.
        self._gluster("volume", "set", NAME, "cluster.server-quorum-type", "none")
        self._gluster("volume", "start", NAME)
        self._mount()
        self.files = make_files(self.mount, self.place.volumes, self.place.volume_bytes)

    def _bricks(self):
        return [f"brick{number}" for number in range(self.copies)]

    def _answers(self):
        if not self.server.alive:
            raise RuntimeError(f"glusterd ended at its start\n{self.server.log_tail()}")
        return self._run("volume", "list").returncode == 0

    def _gluster(self, *words):
        done = self._run(*words)
        if done.returncode != 0:
            raise RuntimeError(f"gluster {' '.join(map(str, words))}: {done.stdout}{done.stderr}")

    def _run(self, *words):
        command = ["gluster", "--mode=script", f"--glusterd-sock={self.folder / 'glusterd.socket'}", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=READY_WITHIN_S)

    def _mount(self):
        self.mount.mkdir()
        options = f"direct-io-mode=enable,log-file={self.folder / 'mount.log'}"
        command = ["mount", "-t", "glusterfs", "-o", options, f"{HOST}:/{NAME}", str(self.mount)]

        def mounted():
            # The bricks tell their ports to the daemon a moment after the volume's start.
            subprocess.run(command, capture_output=True, timeout=READY_WITHIN_S)
            return os.path.ismount(self.mount)

        wait_until(mounted, READY_WITHIN_S, "the FUSE mount")

    def engine(self, volume=0):
        return ["--ioengine=libaio", f"--filename={self.files[volume]}"]

    def path(self, volume=0):
        return self.files[volume]

    def processes(self):
        return [self.server] if self.server else []

    def pids(self):
        """The daemon and those that it started: bricks and self-heal, by the files in which it keeps their ids."""
        return super().pids() + self._children()

    def _children(self):
        found = []
        for path in self.folder.glob("run/**/*.pid"):
            text = path.read_text().strip()
            if text.isdigit() and self._is_ours(int(text)):
                found.append(int(text))
        return found

    def _is_ours(self, pid):
        try:
            return str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def stop(self):
        if os.path.ismount(self.mount):
            subprocess.run(["umount", "--lazy", str(self.mount)], capture_output=True)
        children = self._children()
        for process in self.processes():
            process.kill()
        for pid in children:
            if self._is_ours(pid):
                os.kill(pid, signal.SIGKILL)
