"""What processes cost: CPU time, memory and device bytes, read from /proc for exactly the ids that are given."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Sums over some processes. CPU time and bytes count from the start of each process, memory is of this moment."""

    cpu_s: float = 0.0
    resident_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def __add__(self, other):
        return Usage(
            self.cpu_s + other.cpu_s,
            self.resident_bytes + other.resident_bytes,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
        )


def parse_stat_cpu_s(text):
    """User and system time of all threads in /proc/PID/stat, in seconds; the name in it may hold anything."""
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def parse_status_resident_bytes(text):
    """VmRSS of /proc/PID/status in bytes; 0 for a process that has no memory any more."""
    for line in text.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def parse_io(text):
    """(bytes read from devices, bytes written to devices) of /proc/PID/io."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def usage_of(pid):
    """The Usage of one process; zero when it has ended."""
    folder = Path("/proc") / str(pid)
    try:
        cpu_s = parse_stat_cpu_s((folder / "stat").read_text())
        resident_bytes = parse_status_resident_bytes((folder / "status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return Usage()
    try:
        read_bytes, written_bytes = parse_io((folder / "io").read_text())
    except OSError:
        # Another user's process: its times are public, its bytes are not.
        read_bytes = written_bytes = 0
    return Usage(cpu_s, resident_bytes, read_bytes, written_bytes)


def usage(pids):
    """The sum over the processes."""
    return sum((usage_of(pid) for pid in pids), Usage())
