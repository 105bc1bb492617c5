"""The figures of TLS and of encryption: what is judged, and where it stands in the document."""

from tools.harness.document import PERFORMANCE

from .secure import MEASURED, figures, markdown

TURNS = [{"alone": 1000.0, "beside": 800.0, "seconds": 12.0, "size": "2G"}]


def tables(rate, cpu):
    lines = [{"test": test, "rate": rate, "least": 0.5, "most": 1.5, "cpu": cpu} for test in MEASURED]
    return {"tls": lines, "encrypted": lines}


def test_the_goals_are_judged_without_rounding():
    good = figures(tables(0.9, 1.15), TURNS)
    assert good["tls_write_cpu"] == "1.15: reached" and good["tls_write_4M"] == "0.90: reached"
    assert good["encrypted_read_4M"] == "0.90, 1.15: reached" and good["rotation"] == "0.80"
    assert figures(tables(0.9, 1.151), TURNS)["encrypted_write_4M"] == "0.90, 1.15: **not reached**"
    assert figures(tables(0.799, 1.0), TURNS)["tls_write_4M"] == "0.80: **not reached**"
    assert figures(tables(1.0, 1.2501), TURNS)["tls_write_cpu"] == "1.25: **not reached**"


def test_figures_and_table_have_their_places():
    text = PERFORMANCE.read_text()
    for cell in figures(tables(1.0, 1.0), TURNS):
        assert text.count(f"<!-- {cell} -->") == 1, cell
    assert "<!-- secure: begin -->" in text
    table = markdown(tables(1.0, 1.0), TURNS).splitlines()
    assert table[-1] == "| 1 | 1,000 | 800 | 0.80 | 12 |"
    assert table[2] == "| tls | randwrite_q128 | 1.00 | 0.50 to 1.50 | 1.00 |"
