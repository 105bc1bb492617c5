"""The table of fuzzed inputs keeps what was recorded before."""

from .listed import LISTED
from .table import HEAD, recorded, row

EMPTY = "# Page\n\n<!-- fuzz: begin -->\nNot recorded yet.\n<!-- fuzz: end -->\n\nMore.\n"


def line(test, inputs=100):
    return row(test, inputs, 1234.5, "abcdef12", "2026-01-02")


def test_rows_stand_in_the_order_of_the_list_and_are_replaced():
    first, last = LISTED[0], LISTED[-1]
    text = recorded(recorded(EMPTY, line(last)), line(first))
    assert text == f"# Page\n\n<!-- fuzz: begin -->\n{HEAD}\n{line(first)}\n{line(last)}\n<!-- fuzz: end -->\n\nMore.\n"
    again = recorded(text, line(last, 7_000))
    assert again == text.replace(line(last), line(last, 7_000)) and "| 7,000 | 1,234 s |" in again


def test_tests_of_two_ports_that_have_one_name_have_two_rows():
    names = [test.name for test in LISTED]
    same = [test for test in LISTED if names.count(test.name) > 1]
    assert len(same) > 1
    text = EMPTY
    for test in same:
        text = recorded(text, line(test))
    assert all(line(test) in text for test in same)


def test_what_is_not_listed_any_more_has_no_row():
    gone = "| NBD | `robustness::gone` | 100 | 1 s | abcdef12, 2026-01-02 |"
    assert gone not in recorded(recorded(EMPTY, gone), line(LISTED[0]))


def test_shares_are_rounded_up():
    assert [test.inputs(1_001) for test in (LISTED[0], LISTED[2], LISTED[-1])] == [11, 101, 1_001]
