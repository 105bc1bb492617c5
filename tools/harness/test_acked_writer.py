"""The checker itself: it must see the faults that it is there to see."""

import random

from .acked_writer import BLOCK, Ledger, content, identify


def ledger_with(acked, tried=()):
    ledger = Ledger(4)
    ledger.version = 100
    ledger.acked[2] = acked
    ledger.tried[2] = list(tried)
    return ledger


def test_the_acknowledged_and_later_tries_are_right():
    for version in (5, 6, 7):
        assert ledger_with(5, [6, 7]).check_block(2, content(2, version)) is None


def test_an_older_version_is_a_lost_write():
    assert "version 4" in ledger_with(5).check_block(2, content(2, 4))
    assert "version 0" in ledger_with(5).check_block(2, bytes(BLOCK))


def test_a_version_that_was_never_tried_is_a_fault():
    assert "version 9" in ledger_with(5, [6]).check_block(2, content(2, 9))


def test_damage_is_a_fault():
    good = content(2, 5)
    generator = random.Random(0)
    for _ in range(200):
        position = generator.randrange(BLOCK)
        bad = bytearray(good)
        bad[position] ^= 1 << generator.randrange(8)
        assert ledger_with(5).check_block(2, bytes(bad)) is not None
    torn = good[:512] + content(2, 6)[512:]
    assert ledger_with(5, [6]).check_block(2, torn) is not None
    assert ledger_with(5).check_block(2, content(3, 5)) is not None, "another block's data"


def test_what_was_seen_must_stay():
    ledger = ledger_with(5, [6, 7])
    assert ledger.check_block(2, content(2, 7)) is None
    assert "version 6" in ledger.check_block(2, content(2, 6))


def test_versions_are_recognised():
    assert [identify(3, content(3, version)) for version in (0, 1, 77)] == [0, 1, 77]
