"""The figures of many devices: what is judged, and where it stands in the document."""

from tools.harness.document import PERFORMANCE

from .devices import MEASURED, figures, markdown, tests


def table(rate):
    return [{"test": test, "rate": rate, "least": 0.5, "most": 1.5, "cpu": 1.2} for test in MEASURED]


def test_the_goals_are_judged_without_rounding():
    assert figures(table(0.9))["devices_randwrite_q128"] == "0.90: reached"
    assert figures(table(0.899))["devices_randread_q128"] == "0.90: **not reached**"


def test_figures_and_table_have_their_places():
    assert {test.name for test in tests()} == set(MEASURED)
    text = PERFORMANCE.read_text()
    for cell in figures(table(1.0)):
        assert text.count(f"<!-- {cell} -->") == 1, cell
    assert "<!-- devices: begin -->" in text
    lines = markdown(table(1.0), {"50 devices": ([2.0, 4.0, 3.0], 0.0123, 345.6)}).splitlines()
    assert lines[2] == "| 3 devices | randwrite_q128 | 1.00 | 0.50 to 1.50 | 1.20 |"
    assert lines[-1] == "| 50 devices | 3.0 | 1.23 % | 346 MiB |"
