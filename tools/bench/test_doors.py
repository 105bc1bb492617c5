"""What the doors' benchmark makes of its figures, without clusters."""

import pytest

from . import doors


def turns_of(case, *pairs):
    return [(case, {"rate": ours, "cpu": 2.0}, {"rate": peers, "cpu": 1.0}, "peer") for ours, peers in pairs]


def test_a_row_has_the_median_of_the_turns_ratios():
    case = doors.CASES[0]
    (row,) = doors.rows(turns_of(case, (100, 100), (300, 100), (150, 50)))
    assert (row["ratio"], row["least"], row["most"]) == (3.0, 1.0, 3.0)
    assert (row["ours"]["rate"], row["peer"]["rate"]) == (150, 100)
    assert "| 3.00 | 1.00 to 3.00 | 1.5 |" in doors.markdown([row])
    assert doors.figures([row]) == {"door_iscsi_write_q128": "3.00: reached"}


def test_cpu_is_to_be_at_most_the_goal():
    case = next(case for case in doors.CASES if case.of == "cpu")
    (row,) = doors.rows(turns_of(case, (1, 1)))
    assert row["ratio"] == 2.0
    assert doors.figures([row]) == {f"door_{case.name}": "2.00: **not reached**"}


def test_what_qemu_img_says():
    text = "Sending 2000 read requests, 4096 bytes each, 128 in parallel\nRun completed in 0.125 seconds.\n"
    assert doors.seconds_of(text) == 0.125
    with pytest.raises(RuntimeError):
        doors.seconds_of("qemu-img: Could not open")
