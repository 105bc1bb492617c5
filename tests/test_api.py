"""The REST API as docs/api.md tells it: every example of the page, in its order, with the answer that it shows."""

import json
import re
import subprocess
import urllib.request
from pathlib import Path

from tools.harness.process import wait_until

PAGE = Path(__file__).parent.parent / "docs" / "api.md"


def examples():
    """Commands of the page, each with the answer that stands under it (`None`: it answers nothing)."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    curl "):
            found.append((line.strip(), None))
        elif re.match(r"    [{\[]", line):
            command, answer = found[-1]
            assert answer is None, f"two answers to {command}"
            found[-1] = (command, json.loads(line))
    return found


def missing(shown, answer, where="answer"):
    """What the page shows and the node did not answer; fields that the page leaves out may be there."""
    if isinstance(shown, dict) and isinstance(answer, dict):
        for field, value in shown.items():
            if field not in answer:
                yield f"{where}.{field} is not there"
            else:
                yield from missing(value, answer[field], f"{where}.{field}")
    elif isinstance(shown, list) and isinstance(answer, list) and len(shown) == len(answer):
        for index, value in enumerate(shown):
            yield from missing(value, answer[index], f"{where}[{index}]")
    elif shown != answer:
        yield f"{where} is {answer!r}, and {shown!r} in the page"


def is_ready(node):
    try:
        with urllib.request.urlopen(f"{node.api}/v1/ready", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_the_examples_of_the_page(make_cluster):
    cluster = make_cluster(device_size="1GiB")
    # A cluster is healthy before the devices of all its nodes are open.
    wait_until(lambda: is_ready(cluster.first), 300, "the node's devices")
    done = examples()
    assert len(done) > 10, done
    for command, shown in done:
        # What was made is in the status when all groups are ready.
        cluster.wait_healthy()
        script = f"API={cluster.first.api}\n{command}"
        outcome = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
        if shown is None:
            assert outcome.stdout == "", f"{command}\n{outcome.stdout}"
        else:
            wrong = list(missing(shown, json.loads(outcome.stdout)))
            assert not wrong, f"{command}\n{wrong}\n{outcome.stdout}"


def test_the_program_serves_the_description_of_the_page(cluster):
    command = ["curl", "-s", f"{cluster.first.api}/v1/openapi.json"]
    served = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert served == json.loads((PAGE.parent / "api" / "openapi.json").read_text(encoding="utf-8"))


def test_a_protection_of_nothing_is_told_what_is_missing(cluster):
    cluster.cli("volume", "create", "bare", "64MiB")
    command = ["curl", "-s", "-w", "\n%{http_code}", "-H", "content-type: application/json", "-d", "{}"]
    command.append(f"{cluster.first.api}/v1/volumes/bare/protect")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    body, status = done.stdout.rsplit("\n", 1)
    assert status.startswith("4"), done.stdout
    error = json.loads(body)
    assert "every_seconds" in str(error) and "keep_seconds" in str(error), error
