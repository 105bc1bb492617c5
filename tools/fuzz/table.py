"""The table of what was run, in docs/security.md: a row a test, each of its own commit and day."""

import re

from .listed import LISTED

HEAD = "| port | test | inputs | took | commit, day |\n|---|---|---:|---:|---|"
BEGIN, END = "<!-- fuzz: begin -->\n", "<!-- fuzz: end -->"


def row(test, inputs, seconds, commit, day):
    return f"| {test.port} | `{test.name}` | {inputs:,} | {seconds:,.0f} s | {commit}, {day} |"


def key(test):
    """What a row is known by: names of tests are not unique among ports."""
    return test.port, test.name


def rows_of(table):
    return {found.groups(): found[0] for found in re.finditer(r"^\| ([^|]+) \| `([^`]+)` \|.*$", table, re.M)}


def recorded(text, line):
    """The document with this row in the place of the one that it has of the same test."""
    head, rest = text.split(BEGIN, 1)
    before, tail = rest.split(END, 1)
    rows = rows_of(before) | rows_of(line)
    # What is not listed any more has no row.
    lines = [HEAD] + [rows[key(test)] for test in LISTED if key(test) in rows]
    return head + BEGIN + "\n".join(lines) + "\n" + END + tail
