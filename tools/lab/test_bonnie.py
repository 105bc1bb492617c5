"""Reading bonnie++'s line, on what version 2.00a printed (tools/lab/recorded)."""

from pathlib import Path

import pytest

from . import bonnie

RECORDED = Path(__file__).parent / "recorded"
SETTINGS = {"size_mib": 32, "ram_mib": 16, "files": 1}


def test_figures_are_found_and_what_was_too_fast_is_left_out():
    text = (RECORDED / "bonnie.csv").read_text()
    assert bonnie.parse(text) == {"write_chars_kib_s": 546.0, "read_chars_kib_s": 764.0}
    measured = text.replace("546,50,+++++,+++,", "546,50,81234,12,", 1)
    assert bonnie.parse(measured)["write_kib_s"] == 81234.0


def test_the_fast_mode_has_the_same_fields():
    assert bonnie.parse((RECORDED / "bonnie_fast.csv").read_text()) == {"create_random_s": 1444.0}


@pytest.mark.parametrize("text", ["", "1.97,1.97,x\n", "1.98,2.00a,lab\n", "1.98\n"])
def test_other_output_is_refused(text):
    with pytest.raises(bonnie.BonnieError):
        bonnie.parse(text)


def test_two_lines_are_one_too_many():
    text = (RECORDED / "bonnie.csv").read_text()
    with pytest.raises(bonnie.BonnieError):
        bonnie.parse(text + text)


def test_the_character_tests_can_be_left_out():
    assert "-f" in bonnie.command("d", {**SETTINGS, "per_char": False})
    assert "-f" not in bonnie.command("d", SETTINGS)
