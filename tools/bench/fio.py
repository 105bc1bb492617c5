"""Running fio and reading its JSON."""

import json
import subprocess
from dataclasses import asdict, dataclass

from .plan import COMMON

# Beyond its own --runtime, a fio that hangs is ended after this.
GRACE_S = 120


class FioError(Exception):
    """fio ended with an error, or printed what is not its JSON."""


@dataclass
class Measurement:
    """What one fio run says, in the units of the report."""

    iops: float
    mib_s: float
    requests: int
    latency_mean_us: float
    latency_p99_us: float
    client_cpu_us: float

    def as_dict(self):
        return asdict(self)


def command(engine, size, arguments, runtime_s=None):
    """The fio command line. `engine` names the target, for example ["--ioengine=nbd", "--uri=nbd://…"]."""
    words = ["fio", *COMMON, f"--size={size}", *engine, *arguments]
    if runtime_s is not None:
        words += ["--time_based=1", f"--runtime={runtime_s}"]
    return words


def run(words, runtime_s=600, folder=None):
    """Runs fio and returns its report (the decoded JSON)."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=runtime_s + GRACE_S, cwd=folder)
    except subprocess.TimeoutExpired:
        raise FioError(f"fio did not end within {runtime_s + GRACE_S} s: {' '.join(words)}") from None
    if done.returncode != 0:
        raise FioError(f"fio failed ({done.returncode}): {complaint(done.stdout, done.stderr)}\n{' '.join(words)}")
    return decode(done.stdout)


def complaint(stdout, stderr):
    """What fio says went wrong: not its report, which it prints all the same."""
    notes = stdout[: stdout.find("{")] if "{" in stdout else stdout
    return f"{stderr}{notes}".strip()[-2000:] or "without a word"


def decode(text):
    """The JSON in fio's output; fio may print notes of its own before it."""
    start = text.find("{")
    if start < 0:
        raise FioError(f"fio printed no JSON: {text[:200]!r}")
    try:
        return json.loads(text[start:])
    except ValueError as error:
        raise FioError(f"fio's JSON is broken: {error}") from None


def measure(report):
    """One Measurement out of a report with --group_reporting.

    The rate is requests over the time that fio ran them, not over the time asked for. With --fsync, fio counts the
    sync apart from the write, and the writer waits for both: the mean latency is the sum of the means, the 99th
    percentile the sum of the two percentiles (an upper bound).
    """
    jobs = report["jobs"]
    if len(jobs) != 1:
        raise FioError(f"expected one group of jobs, found {len(jobs)}")
    job = jobs[0]
    if job["error"]:
        raise FioError(f"fio reports error {job['error']}")
    parts = [job[kind] for kind in ("read", "write") if job[kind]["total_ios"]]
    if not parts:
        raise FioError("fio did no request")
    seconds = max(part["runtime"] for part in parts) / 1000
    requests = sum(part["total_ios"] for part in parts)
    # The mixed test is judged by its writes' latency, as the slower kind.
    main = parts[-1]
    mean, p99 = _latency_us(main)
    sync = job.get("sync", {})
    if sync.get("total_ios"):
        sync_mean, sync_p99 = _latency_us(sync)
        mean, p99 = mean + sync_mean, p99 + sync_p99
    return Measurement(
        iops=requests / seconds,
        mib_s=sum(part["io_bytes"] for part in parts) / seconds / 2**20,
        requests=requests,
        latency_mean_us=mean,
        latency_p99_us=p99,
        client_cpu_us=(job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1000 / requests,
    )


def _latency_us(part):
    total = part["lat_ns"]
    percentiles = part.get("clat_ns", total).get("percentile", {})
    return total["mean"] / 1000, percentiles.get("99.000000", 0) / 1000


def version():
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
