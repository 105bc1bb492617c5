"""One test on one target."""

from . import fio, report


def run_test(target, test, options, folder):
    """One test on one target, with the CPU time that its server processes spent meanwhile."""
    words = fio.command(target.engine(), options.size, test.arguments, options.secs)
    cpu_before = target.cpu_seconds()
    raw = fio.run(words, options.secs, folder)
    cpu_s = target.cpu_seconds() - cpu_before
    measurement = fio.measure(raw)
    return report.Run(
        target=target.name,
        test=test.name,
        measurement=measurement,
        server_cpu_us=cpu_s * 1e6 / measurement.requests if target.processes() else None,
        resident_mib=[resident / 2**20 for resident in target.resident_bytes()],
        raw={"command": words, "report": raw},
    )
