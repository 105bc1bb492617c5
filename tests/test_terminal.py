"""What the command line shows on terminals: narrow ones, with colours and without, and what scripts get."""

import json
import os
import pty
import re
import subprocess

import pytest

from tools.harness.cluster import binary, run_cli

STYLE = re.compile(r"\x1b\[[0-9;]*m")
COUNTED = re.compile(r"[\d.]+([KMGTP]i)?B?")


@pytest.fixture(scope="module")
def cluster(module_cluster):
    started = module_cluster(nodes=1)
    started.create_volume(copies=1)
    return started


def on_a_terminal(cluster, *words, code=0, **environment):
    """What a command that ends with this code prints on a terminal, with ordinary line ends."""
    ours, theirs = pty.openpty()
    inherited = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    surroundings = {**inherited, "TERM": "xterm-256color", "AZEKURA_API": cluster.first.api, **environment}
    child = subprocess.Popen(
        [binary(), *words], stdout=theirs, stdin=theirs, stderr=subprocess.STDOUT, env=surroundings
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        # The other side is closed.
        pass
    os.close(ours)
    assert child.wait(30) == code, shown
    return shown.decode().replace("\r\n", "\n")


def test_titles_stand_out_on_a_terminal_alone(cluster):
    # A list in which nothing changes by itself.
    words = ["class", "list"]
    coloured = on_a_terminal(cluster, *words, COLUMNS="200")
    assert STYLE.search(coloured)
    plain = on_a_terminal(cluster, *words, COLUMNS="200", NO_COLOR="1")
    assert not STYLE.search(plain)
    assert [line.rstrip() for line in STYLE.sub("", coloured).splitlines()] == plain.splitlines()
    assert plain.splitlines()[0] == cluster.cli(*words).splitlines()[0]
    assert "\x1b" not in cluster.cli(*words)


@pytest.mark.parametrize("words", [("node", "list"), ("device", "list"), ("group", "list"), ("class", "list")])
def test_sixty_columns_are_enough(cluster, words):
    shown = on_a_terminal(cluster, *words, COLUMNS="60", NO_COLOR="1")
    assert max(map(len, shown.splitlines())) <= 60, shown
    # Nothing is left out but titles of what is empty. Numbers and sizes may have changed meanwhile.
    words_of_rows = " ".join(cluster.cli(*words).splitlines()[1:]).split()
    lasting = [word for word in words_of_rows if not COUNTED.fullmatch(word)]
    assert lasting and all(word in shown for word in lasting), (lasting, shown)


def test_json_is_the_same_everywhere(cluster):
    words = ["class", "list", "--json"]
    shown = on_a_terminal(cluster, *words, COLUMNS="60")
    assert shown == cluster.cli(*words)
    assert json.loads(shown)


def test_what_is_waited_for_is_one_line_that_goes(cluster):
    words = ("status", "--wait", "2", "--nodes", "2")
    shown = on_a_terminal(cluster, *words, code=1, NO_COLOR="1")
    waited, outcome = shown.split("The cluster is NOT healthy:")
    assert "waiting: 1 of the 2 nodes" in waited and "\n" not in waited, shown
    assert waited.endswith("\x1b[2K"), "the line is cleared"
    assert "\x1b" not in outcome
    # A pipe gets a line instead.
    piped = run_cli(*words, api=cluster.first.api)
    assert piped.returncode == 1 and piped.stderr.startswith("waiting: 1 of the 2 nodes"), piped.stderr
    assert "\x1b" not in piped.stderr + piped.stdout
