"""Reading fio's output, on output that fio 3.33 printed (tools/bench/recorded)."""

from pathlib import Path

import pytest

from . import fio

RECORDED = Path(__file__).parent / "recorded"


def recorded(name):
    return fio.decode((RECORDED / f"{name}.txt").read_text())


def near(value):
    return pytest.approx(value, rel=1e-6)


def test_a_note_before_the_json_is_skipped():
    assert (RECORDED / "write_4M.txt").read_text().startswith("fio: connected")
    assert recorded("write_4M")["fio version"] == "fio-3.33"


def test_rate_is_over_the_time_that_fio_ran():
    writes = fio.measure(recorded("write_4M"))
    assert writes.requests == 370
    assert writes.iops == near(370 / 1.048)
    assert writes.mib_s == near(370 * 4 / 1.048)


def test_sync_time_is_part_of_the_latency():
    synced = fio.measure(recorded("randwrite_fsync"))
    assert synced.requests == 2304, "syncs are not requests of their own"
    assert synced.latency_mean_us == near(178.548616319 + 249.601454427)
    assert synced.latency_p99_us == near(264.192 + 362.496)


def test_mixed_run_counts_both_kinds_and_shows_the_writes_latency():
    mixed = fio.measure(recorded("rw75_q64"))
    assert mixed.requests == 22743 + 7909
    assert mixed.iops == near((22743 + 7909) / 1.020)
    assert mixed.latency_mean_us == near(2138.086394487)


def test_several_jobs_are_one_group():
    reads = fio.measure(recorded("randread_q128x4"))
    assert reads.requests == 61254
    assert reads.latency_p99_us == near(19791.872)
    # Four clients' CPU time: job_runtime is their sum.
    assert reads.client_cpu_us == near((3.349045 + 11.535599) / 100 * 4031 * 1000 / 61254)


def test_errors_are_not_numbers():
    report = recorded("write_4M")
    report["jobs"][0]["error"] = 5
    with pytest.raises(fio.FioError, match="error 5"):
        fio.measure(report)
    empty = recorded("write_4M")
    empty["jobs"][0]["write"]["total_ios"] = 0
    with pytest.raises(fio.FioError, match="no request"):
        fio.measure(empty)


@pytest.mark.parametrize("text", ["", "fio: connected to NBD server\n", '{"jobs": [', "{"])
def test_output_that_is_not_a_report_is_refused(text):
    with pytest.raises(fio.FioError):
        fio.decode(text)


def test_command_line_has_the_same_words_for_every_target():
    engine = ["--ioengine=nbd", "--uri=nbd://h/v"]
    words = fio.command(engine, "2G", ["--rw=read"], 8)
    assert words[0] == "fio"
    assert words[-2:] == ["--time_based=1", "--runtime=8"]
    other = fio.command(["--ioengine=libaio", "--filename=f"], "2G", ["--rw=read"], 8)
    assert [word for word in words if word not in engine] == [
        word for word in other if "=libaio" not in word and "=f" not in word
    ]


def test_a_complaint_is_what_fio_says_beside_its_report():
    error = "fio: io_u error on file vol1: No space left on device: write offset=4096, buflen=4096"
    assert fio.complaint(f'{error}\n{{\n  "jobs" : []\n}}\n', "") == error
    assert fio.complaint('{"jobs": []}', f"{error}\n") == error
    assert fio.complaint("", "") == "without a word"
