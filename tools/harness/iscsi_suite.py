"""libiscsi's conformance test, iscsi-test-cu: its suites one by one, and what became of each test."""

import re
from dataclasses import dataclass, field

from tools.harness.run import run

SUITE_WITHIN_S = 120
# Tests that send some 16,000 compare-and-writes each, which takes minutes with a binary that is not optimized.
LONG = ("OrWrite.Simple", "OrWrite.Verify")
# What a test that is skipped says of it, and the row of docs/iscsi.md that gives the reason.
SKIPPED = {
    "RESERVE6 is not implemented": "RESERVE",
    "READDEFECTDATA10 is not implemented": "READ DEFECT DATA",
    "READDEFECTDATA12 is not implemented": "READ DEFECT DATA",
    "WRITEATOMIC16 is not implemented": "WRITE ATOMIC",
    "WRITESAME10 does not support 0-blocks": "WRITE SAME of 0 blocks",
    "WRITESAME16 does not support 0-blocks": "WRITE SAME of 0 blocks",
    "Logical unit is not removable": "not removable",
    "Media is not removable": "not removable",
    "Logical unit is not write-protected": "not write-protected",
    "LBPPB < 2": "LBPPB < 2",
    "--allow-sanitize flag is not set": "SANITIZE",
    "REPORT_SUPPORTED_OPCODES is not implemented": "ReportSupportedOpcodes.OneCommand",
}


@dataclass
class Told:
    """What became of the tests: how many passed, what those that failed wrote, why others were skipped, and which of
    these gave a reason that is not known."""

    passed: int = 0
    failed: dict = field(default_factory=dict)
    skipped: dict = field(default_factory=dict)
    unknown: dict = field(default_factory=dict)

    def __str__(self):
        return (
            f"{self.passed} passed, {len(self.skipped)} were skipped, {len(self.failed)} failed: {sorted(self.failed)}"
        )


def listed():
    """The names of all tests and suites."""
    return run("iscsi-test-cu", "--list", check=False).stdout.split()


def suites():
    """The suites of iscsi-test-cu."""
    return [name.removeprefix("ALL.") for name in listed() if re.fullmatch(r"ALL\.\w+", name)]


def runs():
    """What is run by a process of its own: suites, and of those with a long test the others, one by one."""
    for suite in suites():
        if not any(test.startswith(suite + ".") for test in LONG):
            yield suite, suite
            continue
        tests = [name.removeprefix("ALL.") for name in listed() if name.startswith(f"ALL.{suite}.")]
        yield from ((suite, test) for test in tests if test not in LONG)


def results(suite, output):
    """What became of each test of a suite: (test, passed, why it was skipped)."""
    test, why = None, None
    for line in output.splitlines():
        if begins := re.match(r"\s+Test: (\S+) \.\.\.(.*)", line):
            test, why, line = f"{suite}.{begins[1]}", None, begins[2]
        if test and (ends := re.match(r"(passed|FAILED)", line)):
            yield test, ends[1] == "passed", why
            test = None
        elif test and (skips := re.search(r"\[SKIPPED\] (.*)", line)):
            why = why or skips[1]


def conformance(urls):
    """Runs all suites against these URLs, which are paths to one disk. Each suite has a process of its own: version
    1.19 goes on changing the length of 16-byte commands when its test of COMPARE AND WRITE's data is skipped."""
    told = Told()
    for suite, part in runs():
        done = run("iscsi-test-cu", "--dataloss", "--test", f"ALL.{part}", *urls, check=False, within_s=SUITE_WITHIN_S)
        summary = re.search(r"^\s*tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", done.stdout, re.MULTILINE)
        each = list(results(suite, done.stdout))
        if summary is None or len(each) != int(summary[2]):
            told.failed[part] = (done.stdout + done.stderr)[-1500:]
        for test, is_good, why in each:
            if not is_good:
                told.failed[test] = done.stdout[-1500:]
            elif why is None:
                told.passed += 1
            else:
                told.skipped[test] = why
                if not any(why.startswith(known) for known in SKIPPED):
                    told.unknown[test] = why
    print(told)
    return told
