"""A cluster of three nodes, what fio does to its volumes, and what the nodes count meanwhile."""

import re
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from tools.harness.cluster import run_cli
from tools.harness.process import wait_until

from .. import fio
from ..plan import FILL
from ..sizes import parse_size
from ..sustained import INTERVAL_S, rates
from ..targets import VOLUME, Azekura, Before
from .figures import Phase, last_minute

NODES, COPIES = 3, 2
BLOCK = 4096
MIB = 2**20
TELL_EVERY_S = 10
TARGETS = {"azekura": Azekura, "before": Before}


@dataclass(frozen=True)
class Job:
    """What one fio does: to which volume, over how many bytes of it, with which arguments."""

    volume: str
    size: str
    arguments: str


def samples(text, name):
    """The values of one metric in Prometheus' text format: labels → value."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(rf"azekura_{re.escape(name)}(?:\{{(.*)\}})? (\S+)", line)
        if match:
            found[match[1] or ""] = float(match[2])
    return found


def knows_option(program, option):
    """Whether `azekura node` of that program has an option."""
    shown = subprocess.run([str(program), "node", "--help"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"^\s+(-\w, )?{re.escape(option)}\b", shown, re.MULTILINE) is not None


@dataclass
class Counts:
    """Sums over the nodes since they started, in bytes. What was written is of the processes: the logs and the maps."""

    written: float
    log: float
    gc: float

    def __sub__(self, other):
        return Counts(*(mine - theirs for mine, theirs in zip(vars(self).values(), vars(other).values())))


class Rig:
    """The cluster of one part of the test."""

    def __init__(self, folder, build, program, device_size, options, progress):
        config = "etcd" if options.etcd else "embedded"
        self.target = TARGETS[build](folder, options.size, device_size, config, program)
        self.cluster, self.options, self.folder = self.target.cluster, options, folder
        self.build, self.device_bytes = build, parse_size(device_size)
        self.progress = lambda text: progress(f"{build}: {text}")

    @property
    def small(self):
        """The range that every volume is compared with: what --size says, of a volume of this size."""
        return self.options.size

    def limit_memory(self, default=None):
        """Starts the nodes with --memory, if they know it. Returns the size, None without."""
        memory = self.options.memory or default
        known = knows_option(self.cluster.program, "--memory")
        if not known and self.options.memory:
            raise RuntimeError(f"{self.cluster.program} has no option --memory")
        if not known or memory is None:
            return None
        self.cluster.node_options = ("--memory", memory)
        return memory

    def start(self):
        self.progress(f"starting three nodes with a device of {self.device_bytes / 2**30:.1f} GiB each")
        self.target.start()

    def metrics(self, node):
        with urllib.request.urlopen(f"{node.api}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The sum of one metric over all nodes."""
        found = [samples(self.metrics(node), name) for node in self.cluster.nodes]
        if not any(found):
            raise RuntimeError(f"the nodes have no metric azekura_{name}")
        return sum(sum(values.values()) for values in found)

    def metric_of(self, node, name):
        return sum(samples(self.metrics(node), name).values())

    def counts(self):
        written = sum(node.process.written_bytes() for node in self.cluster.nodes)
        names = ("device_log_bytes_total", "device_gc_bytes_total")
        return Counts(written, *(self.metric(name) for name in names))

    def writes(self):
        """Writes that the first node has answered."""
        found = samples(self.metrics(self.cluster.first), "volume_requests_total")
        return sum(value for labels, value in found.items() if 'operation="write"' in labels)

    def words(self, job, seconds=None):
        engine = ["--ioengine=nbd", f"--uri={self.cluster.first.uri(job.volume)}"]
        return fio.command(engine, job.size, job.arguments.split(), seconds)

    def fio(self, jobs, seconds=None, log=None):
        """Runs one fio a job, all at once, and tells how far they are. Returns their reports."""
        limit_s = seconds or 3600
        lines = [self.words(job, seconds) for job in jobs]
        if log is not None:
            lines[0] += [f"--write_iops_log={self.folder}/{log}", "--log_avg_msec=1000", "--per_job_logs=0"]
        began, before = time.monotonic(), self.writes()
        with ThreadPoolExecutor(len(lines)) as pool:
            running = [pool.submit(fio.run, line, limit_s, self.folder) for line in lines]
            while wait(running, TELL_EVERY_S).not_done:
                now, writes = time.monotonic(), self.writes()
                self.progress(f"{now - began:5.0f} s  {(writes - before) / TELL_EVERY_S:10,.0f} writes a second")
                before = writes
            return [future.result() for future in running]

    def fill(self, volume, size):
        self.progress(f"{volume}: writing {size} in order")
        self.fio([Job(volume, size, " ".join(FILL))])

    def age(self):
        """Writes the small range until every segment of the devices was used: from then on the cleaner runs."""
        self.progress("writing the devices all over once, so that garbage is collected from the first phase on")
        while self.metric("device_log_bytes_total") < NODES * self.device_bytes:
            self.fio([Job(VOLUME, self.small, " ".join(FILL))])

    def resident_mib(self):
        return [node.process.resident_bytes() / MIB for node in self.cluster.nodes]

    def phase(self, name, jobs, seconds):
        """One phase of random writes: the first job's rate and latency, and what the nodes did for all of them."""
        self.progress(f"{name}: {seconds:g} s of {' and '.join(f'{job.volume} ({job.size})' for job in jobs)}")
        log = f"{self.build}-{name}"
        before = self.counts()
        reports = self.fio(jobs, seconds, log)
        spent = self.counts() - before
        measured = [fio.measure(report) for report in reports]
        blocks = COPIES * sum(one.requests for one in measured)
        series = rates((self.folder / f"{log}_iops.log").read_text().splitlines(), seconds)
        phase = Phase(
            name=name,
            seconds=seconds,
            rate=measured[0].iops,
            last_minute=last_minute(series, INTERVAL_S, measured[0].iops),
            p99_us=measured[0].latency_p99_us,
            beside=[one.iops for one in measured[1:]],
            map_bytes=(spent.written - spent.log) / blocks,
            moved_blocks=spent.gc / BLOCK / blocks,
            resident_mib=self.resident_mib(),
            series=series,
        )
        self.progress(f"{name}: {phase.rate:,.0f} writes a second, p99 {phase.p99_us:,.0f} µs")
        return phase

    def map_bytes(self, node):
        """What a node's maps take on the disk: all files of its devices but their logs."""
        files = [path for path in node.data.glob("device-*/*") if path.name not in ("log", "device.json")]
        return sum(path.stat().st_size for path in files)

    def is_open(self, node):
        """Whether all devices of a node that may just have started are served."""
        assert node.alive, f"{node.name} ended\n{node.process.log_tail()}"
        try:
            states = samples(self.metrics(node), "device_open")
        except (urllib.error.URLError, OSError):
            return False
        return bool(states) and all(states.values())

    def restart(self, node):
        """Kills a node, waits until the others know, and starts it. Returns seconds to its devices and to health."""
        node.kill()
        self.progress(f"{node.name} is killed; waiting until the others know")
        wait_until(lambda: not self.healthy(), 120, f"the cluster's word that {node.name} is away")
        began = time.monotonic()
        node.start()
        wait_until(lambda: self.is_open(node), 3600, f"the devices of {node.name}")
        opened_s = time.monotonic() - began
        self.progress(f"{node.name}: its devices are open after {opened_s:.2f} s")
        wait_until(self.healthy, 3600, "the cluster's health")
        return opened_s, time.monotonic() - began

    def healthy(self):
        return run_cli("status", api=self.cluster.first.api, program=self.cluster.program).returncode == 0
