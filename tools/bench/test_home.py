"""The figures of a copy where the volume is: what is judged, and where it stands in the document."""

from tools.harness.document import PERFORMANCE

from .home import MEASURED, PEERS, figures, markdown, tests


def tables(rate):
    lines = [{"test": test, "rate": rate, "least": 0.5, "most": 1.5, "cpu": 0.8} for test in MEASURED]
    return dict.fromkeys(PEERS, lines)


def test_the_goals_are_judged_without_rounding():
    assert figures(tables(0.9)) == {"home_randwrite_fsync": "0.90: reached", "home_randread_q1": "0.90: reached"}
    assert figures(tables(0.899))["home_randread_q1"] == "0.90: **not reached**"


def test_figures_and_table_have_their_places():
    assert {test.name for test in tests()} == set(MEASURED)
    text = PERFORMANCE.read_text()
    for cell in figures(tables(1.0)):
        assert text.count(f"<!-- {cell} -->") == 1, cell
    assert "<!-- home: begin -->" in text
    table = markdown(tables(1.0)).splitlines()
    assert table[2] == "| copies anywhere | randwrite_fsync | 1.00 | 0.50 to 1.50 | 0.80 |"
    assert table[-1].startswith("| qemu-nbd, no copies | read_4M |")
