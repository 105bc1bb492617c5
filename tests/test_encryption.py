"""Encrypted volumes: what clients write is nowhere in the clear, and without the key there is nothing to be had."""

import base64
import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tools.harness.cluster import CliError, run_cli
from tools.harness.nbd import Client, NbdError
from tools.harness.process import wait_until

BLOCK, UNIT, CHUNK, MIB = 4096, 512, 4 * 2**20, 2**20
# A node looks for keys that it lacks every five seconds.
NOTICED_WITHIN_S = 60


def text(marker, length):
    """Bytes of which any 64 hold the marker."""
    return (f"{marker}-" * (length // len(marker) + 1)).encode()[:length]


def key_file(node, digit="7"):
    path = node.cluster.folder / f"{node.name}.kek"
    path.write_text(f"# the key of encrypted volumes' keys\n1 {digit * 64}\n")
    path.chmod(0o600)
    return path


def with_keys(make_cluster, **options):
    """A cluster whose nodes have the same key, each in a file of its own."""
    cluster = make_cluster(start=False, device_size="512MiB", **options)
    for node in cluster.nodes:
        node.options = ["--key-file", key_file(node)]
    cluster.start()
    return cluster


def make(cluster, name, *options):
    cluster.cli("volume", "create", name, "64MiB", *options)
    cluster.wait_healthy()


def files_with(cluster, needle):
    """The files of the stopped cluster, nodes' output among them, that hold these bytes."""
    words = ["grep", "--recursive", "--files-with-matches", "--text", "--fixed-strings", needle, cluster.folder]
    found = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert found.returncode in (0, 1), found.stderr
    return found.stdout.splitlines()


def write(node, volume, pieces):
    with Client(node.uri(volume)) as client:
        for offset, data in pieces.items():
            client.write(offset, data)


def reads(node, volume, pieces):
    with Client(node.uri(volume)) as client:
        return all(client.read(offset, len(data)) == data for offset, data in pieces.items())


def keys_in(cluster):
    """The records of data keys in the configuration, which etcd has: the embedded server speaks no JSON."""
    first, last = b"/azekura/v1/keys/", b"/azekura/v1/keys0"
    body = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(last).decode()}
    request = urllib.request.urlopen(f"{cluster.config_url}/v3/kv/range", json.dumps(body).encode(), timeout=10)
    with request as answer:
        return [json.loads(base64.b64decode(kv["value"])) for kv in json.load(answer).get("kvs", [])]


def refused(node, volume):
    """What a client is told that can't open a volume."""
    with pytest.raises(ConnectionError) as error:
        Client(node.uri(volume)).close()
    return str(error.value)


def told_by_the_kernel(process):
    """What everybody on the machine, or who looks for the remains of a process, gets to see has no key in it."""
    for file in ("cmdline", "environ"):
        shown = Path(f"/proc/{process.pid}/{file}").read_bytes()
        assert shown and b"7" * 64 not in shown, file
    limits = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
    assert next(line.split()[4:6] for line in limits if line.startswith("Max core file size")) == ["0", "0"]


def test_what_is_written_is_nowhere_in_the_clear(make_cluster, config):
    cluster = with_keys(make_cluster, config=config)
    n1, n2, n3 = cluster.nodes
    make(cluster, "open")
    make(cluster, "safe", "--encrypt")
    for volume, marker in [("open", "for-everybody"), ("safe", "top-secret")]:
        whole = {0: text(marker, 16 * BLOCK), CHUNK - BLOCK: text(marker, 3 * BLOCK)}
        # Parts of blocks, one beside what is there and one where nothing was.
        part = {5 * BLOCK + UNIT: text(f"{marker}-part", 2 * UNIT), 20 * MIB + 3 * UNIT: text(marker, UNIT)}
        write(n1, volume, {**whole, **part})
        kept = bytearray(whole[0])
        kept[5 * BLOCK + UNIT : 5 * BLOCK + 3 * UNIT] = part[5 * BLOCK + UNIT]
        beside = bytes(3 * UNIT) + part[20 * MIB + 3 * UNIT] + bytes(BLOCK - 4 * UNIT)
        before = {0: bytes(kept), CHUNK - BLOCK: whole[CHUNK - BLOCK], 20 * MIB: beside, 30 * MIB: bytes(BLOCK)}
        assert reads(n2, volume, before)
        cluster.cli("snapshot", "create", f"{volume}@s")
        cluster.cli("volume", "clone", f"{volume}@s", f"{volume}-clone")
        cluster.wait_healthy()
        write(n3, volume, {BLOCK: text(f"{marker}-later", BLOCK)})
        write(n3, f"{volume}-clone", {2 * BLOCK + UNIT: text(f"{marker}-clone", UNIT)})
        later, cloned = bytearray(kept), bytearray(kept)
        later[BLOCK : 2 * BLOCK] = text(f"{marker}-later", BLOCK)
        cloned[2 * BLOCK + UNIT : 2 * BLOCK + 2 * UNIT] = text(f"{marker}-clone", UNIT)
        if volume == "safe":
            pieces = {volume: {**before, 0: bytes(later)}, f"{volume}-clone": {**before, 0: bytes(cloned)}}
            pieces[f"{volume}@s"] = before
    for name, wanted in pieces.items():
        assert reads(n1, name, wanted), name
    cluster.stop()
    cluster.start()
    for node in cluster.nodes:
        for name, wanted in pieces.items():
            assert reads(node, name, wanted), (node.name, name)
        told_by_the_kernel(node.process)
    shown = {volume["name"]: volume["encrypted"] for volume in cluster.json("volume", "list")}
    assert shown == {"open": False, "open-clone": False, "safe": True, "safe-clone": True}
    cluster.stop()
    logs = [path for path in files_with(cluster, "for-everybody") if path.endswith("/log")]
    assert len(logs) >= 2, "the search finds what is in the clear"
    assert files_with(cluster, "top-secret") == []
    files = sorted(f"{cluster.folder}/{node.name}.kek" for node in cluster.nodes)
    assert sorted(files_with(cluster, "7" * 64)) == files, "nobody writes the key anywhere"


def test_parts_of_units_are_refused(make_cluster):
    cluster = with_keys(make_cluster, nodes=2)
    make(cluster, "safe", "--encrypt")
    with Client(cluster.first.uri("safe")) as client:
        for offset, length in [(1, UNIT), (UNIT, 100), (0, 1)]:
            with pytest.raises(NbdError, match="error 22"):
                client.write(offset, b"x" * length)
        client.write(UNIT, b"y" * UNIT)
        client.write_zeroes(3 * UNIT, 2 * BLOCK)
        assert client.read(0, 2 * BLOCK) == bytes(UNIT) + b"y" * UNIT + bytes(2 * BLOCK - 2 * UNIT)


def test_a_class_can_ask_for_encryption(make_cluster):
    cluster = with_keys(make_cluster, nodes=2)
    cluster.cli("class", "create", "secret", "--copies", "2", "--encrypt")
    for name, options in [("in-class", ["--class", "secret"]), ("other", [])]:
        make(cluster, name, *options)
    shown = {volume["name"]: volume["encrypted"] for volume in cluster.json("volume", "list")}
    assert shown == {"in-class": True, "other": False}
    pieces = {UNIT: text("x", UNIT)}
    write(cluster.first, "in-class", pieces)
    assert reads(cluster.nodes[1], "in-class", pieces)


def test_a_key_goes_with_its_last_user(make_cluster):
    cluster = with_keys(make_cluster, nodes=2, config="etcd")
    make(cluster, "safe", "--encrypt")
    make(cluster, "other", "--encrypt")
    cluster.cli("snapshot", "create", "safe@s")
    cluster.cli("volume", "clone", "safe@s", "copy")
    providers = [key["generations"][0]["provider"] for key in keys_in(cluster)]
    assert providers == ["file", "file"]
    cluster.delete_volume("safe")
    assert len(keys_in(cluster)) == 2
    cluster.delete_volume("copy")
    # The leader deletes the snapshots of deleted volumes, and lists do not show these before.
    wait_until(lambda: len(keys_in(cluster)) == 1, 60, "the end of the key with the snapshot's")
    cluster.delete_volume("other")
    assert keys_in(cluster) == []


def test_a_node_without_the_key_serves_the_others(make_cluster):
    cluster = with_keys(make_cluster)
    n1, n2, _ = cluster.nodes
    make(cluster, "open")
    make(cluster, "safe", "--encrypt")
    pieces = {8 * BLOCK: text("something", 4 * BLOCK)}
    for volume in ["open", "safe"]:
        write(n1, volume, pieces)
    cluster.cli("snapshot", "create", "safe@s")

    def start_again(*options):
        n2.stop()
        n2.options = list(options)
        n2.start()
        wait_until(lambda: run_cli("volume", "list", api=n2.api).returncode == 0, 60, "n2's API")
        wait_until(lambda: reads_now(n2, "open", pieces), 60, "n2's volumes")

    start_again()
    for export in ["safe", "safe@s"]:
        told = refused(n2, export)
        assert "is encrypted" in told and "--key-file" in told, told
    assert reads(n1, "safe", pieces), "others have the key, and read copies on n2 without one there"
    [safe] = [volume for volume in cluster.json("volume", "list", node=n2) if volume["name"] == "safe"]
    assert "--key-file" in safe["key_missing"]
    assert "warning" in cluster.cli("volume", "show", "safe", node=n2)
    [problem] = [problem for problem in cluster.json_of_unhealthy("status")["problems"] if "encrypted" in problem]
    assert "node n2" in problem and "safe" in problem, problem
    with pytest.raises(CliError, match="--key-file"):
        cluster.cli("volume", "create", "more", "64MiB", "--encrypt", node=n2)

    wrong = key_file(n2, "8")
    start_again("--key-file", wrong)
    assert "is not the key" in refused(n2, "safe")
    wrong.chmod(0o644)
    start_again("--key-file", wrong)
    assert "chmod 600" in refused(n2, "safe")
    # Whoever mends the file need not start the node again.
    key_file(n2)
    wait_until(lambda: reads_now(n2, "safe", pieces), NOTICED_WITHIN_S, "the key of n2")
    assert reads(n2, "safe@s", pieces)
    cluster.wait_healthy()


def test_a_volume_with_a_secret_of_its_own_waits_for_that(make_cluster):
    cluster = make_cluster(nodes=2, device_size="512MiB")
    other, node = cluster.nodes
    secret, wrong, new = (cluster.folder / name for name in ("one.secret", "two.secret", "new.secret"))
    for path, whose in ((secret, "seekrit"), (wrong, "another"), (new, "newest")):
        path.write_text(f"{whose} horse battery\n")
    make(cluster, "open")
    # No node has a key file.
    make(cluster, "safe", "--secret-file", secret)
    assert "waits for its secret" in refused(node, "safe")
    # Nobody uses it: that it waits is no problem.
    assert cluster.json("status")["problems"] == []
    cluster.cli("volume", "attach", "safe", "--node", node.name)
    waits = "waits for its secret"
    wait_until(lambda: waits in str(cluster.json_of_unhealthy("status")["problems"]), 60, "the problem")
    assert waits in cluster.cli("volume", "show", "safe", node=node)

    def unlock(path):
        # Whichever node is asked.
        cluster.cli("volume", "unlock", "safe", "--secret-file", path, node=other)

    with pytest.raises(CliError, match="does not open"):
        unlock(wrong)
    pieces = {8 * BLOCK: text("top-secret", 4 * BLOCK)}
    unlock(secret)
    write(node, "safe", pieces)
    write(node, "open", pieces)

    # A restart: the others don't notice, and the secret may be told to another node.
    node.stop()
    node.start()
    wait_until(lambda: reads_now(node, "open", pieces), 60, "the node's volumes")
    assert waits in refused(node, "safe")
    unlock(secret)
    assert reads(node, "safe", pieces)

    # Another secret, while it is used; a snapshot's and a clone's is the same.
    cluster.cli("volume", "clone", "safe", "copy")
    with pytest.raises(CliError, match="does not open"):
        cluster.cli("volume", "change-secret", "safe", "--secret-file", wrong, "--new-secret-file", new)
    for _ in range(2):
        cluster.cli("volume", "change-secret", "safe", "--secret-file", secret, "--new-secret-file", new)
    assert reads(node, "safe", pieces)
    with pytest.raises(CliError, match="does not open"):
        unlock(secret)
    cluster.cli("volume", "unlock", "copy", "--secret-file", new, node=other)
    assert reads(other, "copy", pieces)
    with pytest.raises(CliError, match="not encrypted"):
        cluster.cli("volume", "unlock", "open", "--secret-file", new)

    # Given back, the node has no key of it any more.
    cluster.cli("volume", "detach", "safe", "--node", node.name)
    wait_until(lambda: waits in refusal_of(node, "safe"), 60, "the key's end")
    seen = cluster.cli("audit", "--json") + cluster.cli("kek", "show")
    assert "1 key is wrapped with its volume's own secret" in seen
    assert "horse" not in seen
    cluster.stop()
    held = {path.rsplit("/", 1)[-1] for path in files_with(cluster, "horse battery")}
    assert held == {"one.secret", "two.secret", "new.secret"}, held


def refusal_of(node, volume):
    """What a client is told, if it can't open a volume."""
    try:
        Client(node.uri(volume)).close()
    except ConnectionError as error:
        return str(error)
    return ""


def reads_now(node, volume, pieces):
    """Whether a volume can be opened, and holds that."""
    try:
        return reads(node, volume, pieces)
    except OSError:
        return False
