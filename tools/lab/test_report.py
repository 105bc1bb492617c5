"""The report: complete for every experiment, well formed, honest about what is missing."""

import html
import re
import xml.etree.ElementTree as xml

from . import experiments, report, results
from .experiments import compare
from .results import Spread


def test_page_has_every_experiment_and_needs_nothing_else(reported):
    page = (reported / "index.html").read_text()
    shown = html.unescape(page)
    for name, experiment in experiments.known().items():
        assert f'<section id="{name}">' in page and experiment.question in shown
    assert not re.search(r'(?:src|href)="(?!#)', page), "the page must bring everything along"
    assert "needs &lt;root&gt; &amp; more" in page, "reasons are text, not markup"
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))


def test_a_busy_machine_is_told(kept, reported, tmp_path):
    assert "busy with other work" not in (reported / "index.html").read_text()
    session = {**kept.sessions()[0], "machine": {**kept.sessions()[0]["machine"], "load_before": 3.2}}
    busy = results.Results(tmp_path / "busy.jsonl")
    busy.lines = [session, *(line for line in kept.lines if line.get("experiment") == "E4")]
    for path in report.write(busy, tmp_path):
        text = path.read_text()
        assert "busy with other work" in text and "load 3.2 on 2" in text and "not to be quoted" in text
    for path in report.write(busy, tmp_path, note="Other work <slept> meanwhile."):
        text = html.unescape(path.read_text())
        assert "load 3.2 on 2" in text and "Other work <slept> meanwhile." in text and "not to be quoted" not in text


def test_plots_are_well_formed_and_follow_the_readers_colours(reported):
    plots = sorted((reported / "plots").glob("*.svg"))
    assert len(plots) > 30
    for path in plots:
        text = path.read_text()
        xml.fromstring(text)
        assert "var(--ink)" in text and "prefers-color-scheme:dark" in text and "#010203" not in text, path


def test_markdown_tables_are_whole_and_plots_are_there(reported):
    text = (reported / "report.md").read_text()
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    for name in re.findall(r"\(plots/([^)]+)\)", text):
        assert (reported / "plots" / name).exists()
    assert "not comparable" in text and "where Azekura is behind" in text


def spreads(**values):
    return {(label.replace("_", "-"), "t"): Spread([value]) for label, value in values.items()}


def test_losses_are_told_against_peers_with_copies_and_against_the_yardstick():
    measured = spreads(azekura=90.0, ceph=100.0, qemu_nbd=200.0, raw=300.0)
    (sentence,) = compare.losses(measured, ["t"])
    assert sentence == "t: behind Ceph (0.90) and qemu-nbd without copies (0.45)"
    assert compare.losses(spreads(azekura=90.0, ceph=10.0, raw=300.0), ["t"]) == []


def test_less_time_is_better_time():
    (sentence,) = compare.losses(spreads(azekura=4.0, ceph=2.0), ["t"], fewer_is_better=True)
    assert "Ceph (0.50)" in sentence


def test_ratio_is_not_made_of_nothing():
    assert compare.ratio_cells({("azekura", "t"): 5.0}, "t") == ["–", "–", "–"]
    assert compare.ratio_cells({("ceph", "t"): 5.0}, "t")[0] == "–"


def test_names():
    assert compare.title_of("azekura-3copies") == "Azekura, 3 copies"
    assert compare.title_of("azekura-1copy-noflush") == "Azekura, 1 copy without flushes"
    assert compare.title_of("azekura devices=30") == "Azekura (devices 30)"
    assert compare.title_of("a-target-of-former-times") == "a-target-of-former-times"


def test_numbers_bear_their_digits():
    assert [compare.number(value) for value in (12345.6, 12.34, 1.234)] == ["12,346", "12.3", "1.23"]
    assert compare.spread_text(Spread([1.0, 300.0, 20.0])) == "20.0 (1.00…300)"
