"""Who may ask the REST API: tokens and roles of real nodes, the node's own socket, logins of the command line."""

import http.client
import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tools.harness.cluster import HOST, binary, run_cli
from tools.harness.process import wait_until

DESCRIPTION = Path(__file__).parent.parent / "docs" / "api" / "openapi.json"

# What each role may, as docs/decisions/0037-who-may.md has it, in the words of the description.
MAY = {
    "admin": {"metrics", "see_volumes", "use_volumes", "see_cluster", "operate", "grants", "administer", "node"},
    "operator": {"metrics", "see_volumes", "see_cluster", "operate"},
    "owner": {"see_volumes", "use_volumes", "grants"},
    "user": {"see_volumes", "use_volumes"},
    "csi": {"see_volumes", "use_volumes"},
    "metrics": {"metrics"},
}


@pytest.fixture
def guarded(make_cluster):
    """Two nodes that ask for grants; the harness goes through their own sockets."""
    return make_cluster(nodes=2, api_access="grants")


def ask(node, method, path, token=None):
    """One request through the port: status and text."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    connection = http.client.HTTPConnection(HOST, node.api_port, timeout=90)
    connection.request(method, path, b"{}", headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def status(node, token=None):
    return ask(node, "GET", "/v1/volumes", token)[0]


def create(cluster, name, role, *options):
    token = cluster.cli("token", "create", name, "--role", role, *options).strip()
    for node in cluster.nodes:
        wait_until(lambda node=node: ask(node, "GET", "/v1/whoami", token)[0] == 200, 30, "the token everywhere")
    return token


def operations():
    """Every operation of the description: method, a path, what it needs."""
    for path, methods in json.loads(DESCRIPTION.read_text(encoding="utf-8"))["paths"].items():
        for method, operation in methods.items():
            # Of these names there is nothing.
            yield method.upper(), path.replace("{", "no-").replace("}", ""), operation["x-azekura-needs"]


def test_every_operation_asks_for_what_it_needs(guarded):
    node = guarded.nodes[1]
    tokens = {role: create(guarded, f"the-{role}", role) for role in MAY}
    _, refusal = ask(node, "GET", "/no/such/path")
    wait_until(lambda: ask(node, "GET", "/v1/ready")[0] == 200, 60, "the node to be ready")
    for method, path, needs in operations():
        code, text = ask(node, method, path)
        if needs == "nothing":
            # Whether a node is ready has no names in it: probes are told.
            told = '{"ready":true}' if path == "/v1/ready" else ""
            assert (code, text) == (200, told), f"{method} {path}"
        else:
            assert (code, text) == (401, refusal), f"{method} {path}"
        for role, token in tokens.items():
            code, text = ask(node, method, path, token)
            allowed = needs in {"nothing", "grant"} | MAY[role]
            assert (code not in (401, 403)) == allowed and code != 401, f"{role} {method} {path}: {code} {text}"
    assert "the-user" in ask(node, "GET", "/v1/nodes", tokens["user"])[1]
    guarded.wait_healthy()
    assert guarded.json("status")["api_access"] == "grants", "nodes know each other, and nothing has changed"


def test_a_revoked_token_opens_nothing_at_any_node(guarded):
    token = create(guarded, "ann", "user")
    assert [status(node, token) for node in guarded.nodes] == [200, 200]
    listed = guarded.json("token", "list")
    assert [(grant["name"], grant["role"]) for grant in listed] == [("ann", "user")]
    assert token not in json.dumps(listed)
    guarded.cli("token", "revoke", "ann")
    for node in guarded.nodes:
        wait_until(lambda node=node: status(node, token) == 401, 30, f"the end of the token at {node.name}")
    assert guarded.json("token", "list") == []
    secret = token[len("azka_") + 11 : -6]
    assert not any(secret in node.log() for node in guarded.nodes), "logs have no secrets"


def test_wrong_tokens_are_slowed_and_good_ones_are_not(guarded):
    node = guarded.first
    good = create(guarded, "ann", "admin")
    wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
    for _ in range(10):
        assert status(node, wrong) == 401
    waiting = [threading.Thread(target=status, args=(node, wrong)) for _ in range(20)]
    began = time.monotonic()
    for thread in waiting:
        thread.start()
    assert status(node, good) == 200
    assert any(thread.is_alive() for thread in waiting), "a good one waits for nobody"
    assert status(node) == 401, "who shows nothing has not tried"
    for thread in waiting:
        thread.join()
    # Nobody is faster than that, however fast the machine is.
    assert time.monotonic() - began > 8


def test_a_nodes_own_socket_is_its_users(guarded):
    node = guarded.first
    door = node.data / "api.sock"
    for _ in range(2):
        assert stat.S_IMODE(os.stat(door).st_mode) == 0o600 and stat.S_ISSOCK(os.stat(door).st_mode)
        assert run_cli("volume", "list", api=f"unix:{door}").returncode == 0
        node.kill()
        refused = run_cli("volume", "list", api=f"unix:{door}")
        assert refused.returncode == 6 and "no answer from unix:" in refused.stderr, refused.stderr
        node.start()
        guarded.wait_healthy()


def test_the_command_line_logs_in(guarded, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("AZEKURA_TOKEN_FILE", raising=False)
    node, other = (f"http://{HOST}:{node.api_port}" for node in guarded.nodes)
    token = create(guarded, "ann", "operator")

    def log_in(text):
        words = [str(binary()), "login", "--api", node]
        return subprocess.run(words, input=text, capture_output=True, text=True, timeout=60)

    refused = run_cli("volume", "list", api=node)
    assert refused.returncode == 5 and "azekura login" in refused.stderr, refused.stderr
    cut = log_in(token[:-3])
    assert cut.returncode == 1 and "was it cut?" in cut.stderr and token[5:40] not in cut.stderr, cut.stderr
    done = log_in(token + "\n")
    assert done.returncode == 0 and "ann, role operator" in done.stdout and token not in done.stdout, done
    kept = tmp_path / "azekura" / "login.json"
    assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600 and token in kept.read_text()
    assert run_cli("volume", "list", api=node).returncode == 0
    forbidden = run_cli("volume", "create", "v", "1GiB", api=node)
    assert forbidden.returncode == 5 and "the role 'operator'" in forbidden.stderr, forbidden.stderr
    assert run_cli("volume", "list", api=other).returncode == 5, "the token is shown to its own API alone"
    kept.chmod(0o644)
    exposed = run_cli("volume", "list", api=node)
    assert exposed.returncode == 1 and "chmod 600" in exposed.stderr, exposed.stderr
    kept.chmod(0o600)
    assert run_cli("logout", api=node).returncode == 0 and token not in kept.read_text()

    file = tmp_path / "token"
    file.write_text(token + "\n")
    file.chmod(0o600)
    monkeypatch.setenv("AZEKURA_TOKEN_FILE", str(file))
    assert run_cli("volume", "list", api=other).returncode == 0


def test_owners_give_no_more_than_they_have(guarded, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(create(guarded, "boss", "owner"))
    file.chmod(0o600)
    create(guarded, "root", "admin")
    monkeypatch.setenv("AZEKURA_TOKEN_FILE", str(file))
    api = f"http://{HOST}:{guarded.first.api_port}"
    assert run_cli("token", "create", "x", "--role", "admin", api=api).returncode == 5
    assert run_cli("token", "create", "x", "--role", "user", "--ends-after", "1d", api=api).returncode == 0
    listed = json.loads(run_cli("token", "list", "--json", api=api).stdout)
    assert {grant["name"] for grant in listed} == {"boss", "x"}
    hidden = run_cli("token", "revoke", "root", api=api)
    assert hidden.returncode == 3 and "there is no grant 'root'" in hidden.stderr, hidden.stderr
    assert run_cli("token", "revoke", "x", api=api).returncode == 0


def test_a_cluster_begins_open_on_loopbacks_alone(make_cluster):
    cluster = make_cluster(nodes=1)
    assert cluster.json("status")["api_access"] == "open"
    assert status(cluster.first) == 200
    create(cluster, "ann", "metrics")
    cluster.cli("cluster", "set", "api-access", "grants", node=cluster.first)
    wait_until(lambda: status(cluster.first) == 401, 30, "the setting at the node")
    wide = make_cluster(nodes=1, start=False)
    # The last of two counts.
    wide.first.options = ["--api", f"0.0.0.0:{wide.first.api_port}"]
    arguments = [word for word in wide.first.arguments() if word]
    first = arguments.index("--api")
    del arguments[first : first + 2]
    wide.first.arguments = lambda: arguments
    wide.first.start()
    wait_until(lambda: (wide.first.data / "api.sock").exists(), 30, "the socket")
    door = f"unix:{wide.first.data}/api.sock"
    wait_until(lambda: run_cli("volume", "list", api=door).returncode == 0, 30, "the node")
    assert json.loads(run_cli("status", "--json", api=door).stdout)["api_access"] == "grants"
    assert status(wide.first) == 401
