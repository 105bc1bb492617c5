"""Programs of others at work on volumes while things break: fio with verify, PostgreSQL on ext4 under pgbench."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tools.harness.cluster import ROOT
from tools.harness.process import Process, wait_until
from tools.harness.run import run

PROGRAM_WITHIN_S = 180
FIO_RATE, PGBENCH_RATE = 150, 40


class Relay:
    """The process that keeps a program's connection alive; its socket's URI is what the program connects to."""

    def __init__(self, folder, name, uris):
        self.socket = folder / f"{name}.relay"
        command = [sys.executable, "-m", "tools.torment.relay", self.socket, *uris]
        self.process = Process(command, folder / f"{name}-relay.log", {"PYTHONPATH": str(ROOT)})
        self.uri = f"nbd+unix:///{name}?socket={self.socket}"
        wait_until(self.socket.exists, 30, "the relay")

    @property
    def reconnects(self):
        return self.process.log_text().count("reconnected")

    @property
    def answered(self):
        """Requests that have been answered."""
        try:
            return int(Path(f"{self.socket}.count").read_text())
        except FileNotFoundError:
            return 0

    def problems(self):
        return [line for line in self.process.log_text().splitlines() if "PROBLEM" in line]


class Program:
    """A workload of the torment that is other people's program; `done` counts what it reports to have done."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.faults, self.io_errors = [], []

    @property
    def reconnects(self):
        return self.relay.reconnects

    def asking(self):
        return f"its relay: {self.relay.process.log_tail(3)}"

    def close(self):
        """Undoes what it has mounted."""


class Fio(Program):
    """fio: writes 32 MiB at random with checksums, reads all of it back, again and again."""

    def __init__(self, rig, folder):
        super().__init__("fio", folder)
        self.relay = Relay(folder, "fio", [node.uri("fio") for node in rig.nodes])
        self.wanted, self.rounds = True, 0
        self.thread = threading.Thread(target=self._rounds, daemon=True)

    def start(self):
        self.thread.start()

    @property
    def done(self):
        return self.relay.answered

    def _rounds(self):
        while self.wanted:
            command = ["fio", "--name=verify", "--ioengine=nbd", f"--uri={self.relay.uri}", "--rw=randwrite"]
            command += ["--bsrange=4k-32k", "--size=32m", "--iodepth=8", f"--rate_iops={FIO_RATE}"]
            command += ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", f"--randseed={self.rounds + 1}"]
            with open(self.folder / "fio.log", "ab") as log:
                code = subprocess.run(command, stdout=log, stderr=log, cwd=self.folder, check=False).returncode
            self.rounds += 1
            if code != 0:
                text = (self.folder / "fio.log").read_text(errors="replace")[-1500:]
                self.faults.append(f"fio, round {self.rounds}: exit code {code}: {text}")
                return

    def finish(self):
        """The round under way ends with its reading back."""
        self.wanted = False
        self.thread.join(PROGRAM_WITHIN_S)
        if self.thread.is_alive():
            self.faults.append(f"fio did not end within {PROGRAM_WITHIN_S} s")
        self.faults += self.relay.problems()


def postgres_programs():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    assert found, "PostgreSQL is not installed"
    return found[-1]


class Postgres(Program):
    """PostgreSQL with data checksums on ext4 on a loop device on nbdfuse, under pgbench; checked by its own tools."""

    def __init__(self, rig, folder):
        super().__init__("pg", folder)
        self.bin = postgres_programs()
        self.relay = Relay(folder, "pg", [node.uri("pg") for node in rig.nodes])
        self.fuse, self.mount = folder / "pg-fuse", folder / "pg-mnt"
        self.data, self.sockets = self.mount / "data", folder / "pg-run"
        self.undo = []
        for path in (self.fuse, self.mount, self.sockets):
            path.mkdir()
        # The user of the database server must get through to its sockets.
        os.chmod(folder.parent, 0o755)
        os.chmod(folder, 0o755)
        self._attach()
        self._make_cluster()

    def _attach(self):
        server = Process(["nbdfuse", self.fuse, self.relay.uri], self.folder / "nbdfuse.log")
        file = self.fuse / "nbd"
        wait_until(lambda: not server.alive or file.exists(), 30, "nbdfuse")
        assert server.alive, server.log_tail()
        self.device = run("losetup", "--find", "--show", file).stdout.strip()
        self.undo.append(lambda: subprocess.run(["losetup", "--detach", self.device], check=False))
        run("mkfs.ext4", "-q", "-F", self.device)
        run("mount", self.device, self.mount)
        self.undo.append(lambda: subprocess.run(["umount", "--lazy", self.mount], check=False))

    def as_postgres(self, *words):
        # Not runuser, which would stand between the program and its signals.
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--", *map(str, words)]

    def _run(self, program, *words, check=True):
        return run(
            *self.as_postgres(self.bin / program, *words), within_s=PROGRAM_WITHIN_S, check=check, cwd=self.sockets
        )

    def _make_cluster(self):
        self.data.mkdir()
        for path in (self.data, self.sockets):
            run("chown", "postgres", path)
        self._run("initdb", "--no-sync", "--data-checksums", "--auth=trust", "-D", self.data)
        with open(self.data / "postgresql.conf", "a") as settings:
            settings.write(f"listen_addresses = ''\nunix_socket_directories = '{self.sockets}'\n")
            # Little memory, so that pages are read from the volume, and checkpoints all the time.
            settings.write("shared_buffers = 16MB\ncheckpoint_timeout = 30s\nmax_wal_size = 128MB\n")
        self._server_start()
        self._run("createdb", "-h", self.sockets, "pgbench")
        self._run("pgbench", "-h", self.sockets, "--initialize", "--quiet", "--scale=2", "pgbench")

    def _server_start(self):
        # Not pg_ctl: its server would be nobody's child.
        self.server = Process(self.as_postgres(self.bin / "postgres", "-D", self.data), self.folder / "postgres.log")

        def accepts():
            assert self.server.alive, self.server.log_tail()
            return self._run("pg_isready", "-h", self.sockets, check=False).returncode == 0

        wait_until(accepts, 60, "PostgreSQL")

    def start(self):
        command = [self.bin / "pgbench", "-h", self.sockets, "--client=4", "--time=100000", "--progress=1"]
        command += [f"--rate={PGBENCH_RATE}", "--no-vacuum", "pgbench"]
        self.bench = Process(self.as_postgres(*command), self.folder / "pgbench.log")

    @property
    def done(self):
        """Transactions so far: pgbench tells the rate of each second."""
        rates = re.findall(r"^progress: [0-9.]+ s, ([0-9.]+) tps", self.bench.log_text(), re.MULTILINE)
        return int(sum(map(float, rates)))

    def finish(self):
        """Stops everything and checks: pgbench's balances, page checksums, indexes, the file system."""
        if not self.bench.alive:
            self.faults.append(f"pgbench ended: {self.bench.log_tail(5)}")
        self.bench.stop()
        query = (
            "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)"
            " and (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)"
        )
        sums = self._run("psql", "-h", self.sockets, "-At", "-c", query, "pgbench", check=False)
        self._expect("the sums of pgbench", sums, sums.stdout.strip() in ("t", ""))
        self._expect(
            "pg_amcheck",
            self._run(
                "pg_amcheck", "-h", self.sockets, "--install-missing", "--heapallindexed", "pgbench", check=False
            ),
        )
        self.server.child.send_signal(signal.SIGINT)
        self.server.child.wait(PROGRAM_WITHIN_S)
        self._expect("pg_checksums", self._run("pg_checksums", "--check", "-D", self.data, check=False))
        run("umount", self.mount, within_s=PROGRAM_WITHIN_S)
        self.undo.pop()
        self._expect("fsck", run("fsck.ext4", "-f", "-n", self.device, within_s=PROGRAM_WITHIN_S, check=False))
        self.faults += self.relay.problems()
        self.close()

    def _expect(self, what, result, good=True):
        if result.returncode != 0 or not good:
            self.faults.append(f"{what}: exit code {result.returncode}: {(result.stdout + result.stderr)[-1500:]}")

    def close(self):
        while self.undo:
            self.undo.pop()()
        subprocess.run(["fusermount3", "-u", "-z", self.fuse], check=False, capture_output=True)
