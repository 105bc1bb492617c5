"""What is written down of a run of the simulator is what it said."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tools.harness.document import RELIABILITY

from .simulated import MODES, parse, table

ROOT = Path(__file__).resolve().parents[2]

SAID = """     0 s: 2 seeds, 0.05 cluster-hours, 2414 operations, 110 faults, 0 violations
     1 s: 3 seeds, 0.07 cluster-hours, 3620 operations, 176 faults, 1 violations
3620 operations in 250 s of virtual time: 3533 done, 0 failed, 64 fenced, 23 of unknown outcome
205821 events, 31971 messages of 101 MiB, 117 MiB of log, 790 checkpoints, 307 segments cleaned, 3232 blocks moved
42 starts of processes, 95 scrubs, 0 checksum errors; faults: 76 × attachment ended by force, 5 × broken connection, \
15 × stalled process
"""


def test_the_last_word_counts():
    totals, faults = parse(SAID)
    assert totals == {"seeds": 3, "hours": 0.07, "operations": 3620, "faults": 176, "violations": 1}
    assert faults == {"attachment ended by force": 76, "broken connection": 5, "stalled process": 15}
    written = table([("all", totals)], faults)
    assert "| all | 3 | 0.07 | 3,620 | 176 | 1 |" in written
    assert written.index("attachment ended") < written.index("stalled") < written.index("broken connection")


def help_of_simulator():
    """What the simulator says of its options: the one that was built last, or one that is built for this."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for profile in ("debug", "release") if (path := target / profile / "azekura-sim").is_file()]
    command = ["cargo", "run", "-qp", "azekura-sim", "--"]
    if built:
        command = [max(built, key=lambda path: path.stat().st_mtime)]
    return subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def modes_in(said):
    values = re.search(r"--mode <MODE>.*?Possible values:\n(.*?)\n\n", said, re.DOTALL)
    return set(re.findall(r"^ +- ([a-z-]+):", values.group(1), re.MULTILINE))


def test_every_mode_with_faults_is_recorded():
    modes = modes_in(help_of_simulator())
    assert "calm" in modes and len(modes) > 10
    assert {mode for mode, *_ in MODES} == modes - {"calm"}


def test_silence_is_no_success():
    with pytest.raises(ValueError, match="said nothing"):
        parse("killed")


def test_every_figure_has_its_cell_in_the_document():
    text = RELIABILITY.read_text()
    cells = [
        "primary",
        "machine 1",
        "machine 2",
        "secondary",
        "gateway",
        "restart 1",
        "restart 2",
        "resync",
        "beside",
        "torment",
        "torment hangs",
    ]
    cells.append("simulated")
    for name in cells:
        assert text.count(f"<!-- {name} -->") == 1, name
    for name in {cell.split()[0] for cell in cells}:
        assert text.count(f"<!-- {name}: begin -->") == text.count(f"<!-- {name}: end -->") == 1, name
