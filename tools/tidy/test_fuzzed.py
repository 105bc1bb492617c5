"""`./dev fuzz` gives each test that it lists as many inputs as it says."""

import re
from pathlib import Path

import pytest

from tools.fuzz.listed import LISTED

ROOT = Path(__file__).parents[2]


def blocks(crate, name):
    """The `proptest!` blocks that have a test of this name: beginning of the block up to the test."""
    *module, name = name.split("::")
    for file in sorted((ROOT / "crates" / crate).rglob(f"{module[-1] if module else '*'}.rs")):
        for block in re.split(r"^ *proptest! \{", file.read_text(), flags=re.M)[1:]:
            found = re.search(rf"\bfn {name}\b", block)
            if found:
                yield file, block[: found.start()]


@pytest.mark.parametrize(("crate", "name"), [(test.crate, test.name) for test in LISTED])
def test_the_number_of_inputs_is_asked_for_from_outside(crate, name):
    """A configuration of a test's own takes the place of PROPTEST_CASES: the table would be wrong."""
    found = list(blocks(crate, name))
    assert found, f"crate {crate} has no property test {name}"
    for file, before in found:
        assert "cases" not in before, f"{file}: {name} has its own number of cases"


def test_all_are_found():
    assert len(LISTED) > 15
