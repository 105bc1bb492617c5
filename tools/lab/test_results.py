"""The results file: going on after a cut, telling plans apart, medians with their spread."""

import pytest

from . import results


def line(key, mark="m", **more):
    return {"kind": "step", "experiment": "E0", "key": key, "mark": mark, "label": "t", "test": key, **more}


def test_what_was_measured_is_found_again(tmp_path):
    path = tmp_path / "folder" / "r.jsonl"
    results.Results(path).append(line("a", data={"x": 1}))
    again = results.Results(path)
    assert again.done("E0", "m") == {"a"}
    assert again.done("E0", "other settings") == set()
    assert again.done("E3", "m") == set()


def test_failures_are_repeated_and_the_later_line_counts(tmp_path):
    kept = results.Results(tmp_path / "r.jsonl")
    kept.append(line("a", failed="broken"))
    kept.append(line("b", unavailable="no such thing here"))
    assert kept.done("E0", "m") == {"b"}
    kept.append(line("a", data={"x": 2}))
    assert kept.done("E0", "m") == {"a", "b"}
    assert [step.get("data") for step in kept.steps("E0")] == [{"x": 2}, None]


def test_a_torn_last_line_is_skipped_and_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "r.jsonl"
    results.Results(path).append(line("a", data={}))
    with open(path, "a") as file:
        file.write('{"kind":"step","key":"torn","da')
    results.Results(path).append(line("b", data={}))
    assert results.Results(path).done("E0", "m") == {"a", "b"}


def test_a_file_that_is_something_else_is_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("<html>\n")
    with pytest.raises(ValueError, match="line 1"):
        results.Results(path)


def test_fingerprint_follows_the_settings_but_not_the_choice_of_targets():
    settings = {"seconds": 1, "targets": ["raw"], "rounds": 3}
    assert results.fingerprint(settings) == results.fingerprint({**settings, "targets": ["ceph"], "rounds": 1})
    assert results.fingerprint(settings) != results.fingerprint({**settings, "seconds": 2})


def test_spread():
    lines = [line("a", data={"x": value}) for value in (5, 1, 3)] + [line("a", failed="f"), line("a", data={})]
    spread = results.spreads(lines, lambda data: data.get("x"))["t", "a"]
    assert (spread.median, spread.least, spread.most, len(spread)) == (3, 1, 5, 3)
