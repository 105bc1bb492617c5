"""Processes on this machine: started so that they never outlive us, and measured from /proc."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
# Below the kernel's range for outgoing connections (32768 and up), so that none of those takes a port of ours.
# Where tests run beside each other, each worker of pytest-xdist has a third of them.
_THIRDS = {"gw0": (20000, 23999), "gw1": (24000, 27999), "gw2": (28000, 31999)}
_PORT_FIRST, _PORT_LAST = _THIRDS.get(os.environ.get("PYTEST_XDIST_WORKER"), (20000, 31999))
_next_port = _PORT_FIRST + (os.getpid() * 37) % (_PORT_LAST - _PORT_FIRST)


def die_with_parent():
    """Runs in the child before exec: the kernel kills it when this process ends, however it ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    """A TCP port of the loopback that nobody listens on. Each call gives another one."""
    global _next_port
    for _ in range(_PORT_LAST - _PORT_FIRST):
        _next_port = _next_port + 1 if _next_port < _PORT_LAST else _PORT_FIRST
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", _next_port))
            except OSError:
                continue
        return _next_port
    raise RuntimeError("no free TCP port on the loopback")


def remote_ports(pid):
    """How many TCP connections of a process stand, by the port at the other end."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue  # Closed meanwhile.
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    # Columns 2 and 3 are the remote address and the state, 9 the inode (proc_pid_net(5)); 01 is established.
    return Counter(int(row[2].split(":")[1], 16) for row in rows if row[3] == "01" and row[9] in inodes)


class Process:
    """A child process with its log in a file. Signals go to this process id alone."""

    def __init__(self, command, log, environment=None):
        self.command = [str(word) for word in command]
        self.log_path = Path(log)
        with open(self.log_path, "ab") as out:
            out.write(f"---- start: {' '.join(self.command)}\n".encode())
            out.flush()
            self.child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=die_with_parent,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self):
        return self.child.pid

    @property
    def alive(self):
        return self.child.poll() is None

    def signal(self, number):
        if self.alive:
            self.child.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        return self.child.wait()

    def pause(self):
        """Returns when all threads stand still: the signal is there before they have heard of it."""
        self.signal(signal.SIGSTOP)
        wait_until(self.stands_still, 60, f"{self.command[0]} to stand still")

    def stands_still(self):
        """Whether all threads are stopped (state T of proc_pid_stat(5)), or the process has ended."""
        try:
            stats = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        except (FileNotFoundError, ProcessLookupError):
            return not self.alive
        return all(stat.rsplit(")", 1)[1].split()[0] in "TZ" for stat in stats)

    def resume(self):
        self.signal(signal.SIGCONT)

    def stop(self, within_s=60):
        """SIGTERM; returns the exit code. A process that does not listen is killed and that is an error."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return self.child.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            message = f"{self.command[0]} did not stop within {within_s} s of SIGTERM\n{self.log_tail()}"
            raise RuntimeError(message) from None

    def log_text(self):
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines=25):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def cpu_seconds(self):
        """User and system CPU time of all threads, also of those that ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def written_bytes(self):
        """Bytes that all threads have had written to devices; with direct I/O that is what they wrote."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
        return 0


def wait_until(condition, within_s, what):
    """Polls until `condition()` is true; its value. The time limit only bounds a hang, no test's verdict is a speed."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s} s")
        time.sleep(0.05)
