"""Who has changed what: real nodes, the command line, the nodes' logs."""

import json

from tests.test_grants import ask, create, guarded  # noqa: F401
from tools.harness.cluster import HOST, run_cli


def test_the_audit_tells_who_has_changed_what_from_where(guarded, tmp_path, monkeypatch):  # noqa: F811
    token = create(guarded, "ann", "admin")
    node = guarded.nodes[1]
    assert ask(node, "POST", "/v1/volumes", token)[0] == 422, "it is refused, and leaves nothing"
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    monkeypatch.setenv("AZEKURA_TOKEN_FILE", str(file))
    made = run_cli("volume", "create", "v", "1GiB", api=f"http://{HOST}:{node.api_port}")
    assert made.returncode == 0, made.stderr
    deleted = run_cli("volume", "delete", "v", "--yes", api=f"http://{HOST}:{node.api_port}")
    assert deleted.returncode == 0, deleted.stderr
    monkeypatch.delenv("AZEKURA_TOKEN_FILE")
    records = guarded.json("audit")
    told = [(record["who"], record["operation"], record["node"], record["from"]) for record in records]
    assert told == [
        ("the node's user", "GrantCreate", "n1", "the node's own socket"),
        ("ann", "VolumeCreate", "n2", HOST),
        ("ann", "VolumeDelete", "n2", HOST),
    ]
    assert records[1]["details"]["body"]["size_bytes"] == 1 << 30
    revisions = [record["revision"] for record in records]
    assert revisions == sorted(set(revisions)) and revisions[0] > 0
    assert [record["operation"] for record in guarded.json("audit", "--who", "ann")] == ["VolumeCreate", "VolumeDelete"]
    text = guarded.cli("audit", "--since", "1 hour ago")
    assert "DELETE /v1/volumes/v" in text and "ann" in text
    log = node.log()
    assert "audit: ann (role admin) from 127.0.0.1: VolumeCreate, POST /v1/volumes" in log
    # Nobody but an admin sees it, and no secret is in it.
    operator = create(guarded, "bob", "operator")
    assert ask(node, "GET", "/v1/audit", operator)[0] == 403
    for secret in (token[16:59], operator[16:59]):
        assert secret not in json.dumps(guarded.json("audit"))
        assert not any(secret in each.log() for each in guarded.nodes)
        assert secret.encode() not in (guarded.first.data / "config.redb").read_bytes()
