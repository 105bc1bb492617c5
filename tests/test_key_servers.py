"""Keys of encrypted volumes that OpenBao or a KMIP server wraps: real servers, which come, go, rotate and refuse."""

import base64
import json
import urllib.request

import pytest

from tests.test_encryption import BLOCK, files_with, key_file, keys_in, make, reads, reads_now, refused, text, write
from tools.harness.certificates import Authority
from tools.harness.cluster import CliError
from tools.harness.kmip import Kmip
from tools.harness.process import wait_until
from tools.harness.vault import Vault

PIECES = {8 * BLOCK: text("something", 2 * BLOCK)}
# A node asks again for what it lacks every five seconds, and waits for an answer as long.
NOTICED_WITHIN_S = 60


@pytest.fixture
def authority(folder):
    return Authority(folder / "authority")


@pytest.fixture
def vault(folder, authority):
    vault = Vault(folder / "vault", authority)
    yield vault
    vault.process.kill()


@pytest.fixture
def kmip(folder, authority):
    kmip = Kmip(folder / "kmip", authority)
    yield kmip
    kmip.process.kill()


def private(path, content):
    path.write_text(content)
    path.chmod(0o600)
    return path


def vault_options(vault, token_file):
    options = ["--vault", vault.url, "--vault-key", "azekura", "--vault-token-file", token_file]
    return [*options, "--vault-ca", vault.authority.certificate]


def by_provider(cluster, node=None):
    shown = cluster.json("kek", "show", node=node)
    return {(version["provider"], version["version"]): version["keys"] for version in shown["versions"]}


def problem_of(cluster, volume, node):
    """Why a node does not serve a volume; empty: it does."""
    [found] = [shown for shown in cluster.json("volume", "list", node=node) if shown["name"] == volume]
    return found.get("key_missing") or ""


def wait_for_problem(cluster, volume, node, *told):
    wait_until(lambda: all(word in problem_of(cluster, volume, node) for word in told), NOTICED_WITHIN_S, told)


def put_record(cluster, record):
    """Writes a data key's record past the API, as whoever has etcd can."""
    key, value = f"/azekura/v1/keys/{record['id']}", json.dumps(record)
    body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value.encode()).decode()}
    urllib.request.urlopen(f"{cluster.config_url}/v3/kv/put", json.dumps(body).encode(), timeout=10).close()


def start_again(node, *volumes):
    node.kill()
    node.start()
    wait_until(lambda: all(reads_now(node, volume, PIECES) for volume in volumes), NOTICED_WITHIN_S, volumes)


def test_vault_wraps_rotates_and_goes_away(make_cluster, folder, vault):
    cluster = make_cluster(start=False, nodes=2, device_size="512MiB", config="etcd")
    n1, n2 = cluster.nodes
    token = private(folder / "token", vault.token + "\n")
    for node, wraps in [(n1, "file"), (n2, "vault")]:
        files = ["--key-file", key_file(node), *vault_options(vault, token)]
        node.options = [*files, "--wrap-keys", wraps]
    cluster.start()
    make(cluster, "open")
    make(cluster, "old", "--encrypt")
    cluster.cli("volume", "create", "new", "64MiB", "--encrypt", node=n2)
    cluster.wait_healthy()
    for volume in ["open", "old", "new"]:
        write(n1, volume, PIECES)
        assert reads(n2, volume, PIECES), volume
    assert by_provider(cluster) == {("file", 1): 1, ("vault", 1): 1}

    # All go to Vault, and then to its newer version.
    told = cluster.json("kek", "rewrap", node=n2)
    assert (told["provider"], told["version"], told["rewrapped"], told["failed"]) == ("vault", 1, 1, []), told
    assert by_provider(cluster) == {("file", 1): 0, ("vault", 1): 2}
    vault.rotate()
    assert "version 2 of 'vault': azekura kek rewrap" in cluster.cli("kek", "show", node=n2)
    assert cluster.json("kek", "rewrap", node=n2)["rewrapped"] == 2
    assert by_provider(cluster) == {("file", 1): 0, ("vault", 1): 0, ("vault", 2): 2}
    records = keys_in(cluster)
    assert all(record["generations"][0]["wrapped"].startswith("vault:v2:") for record in records)

    # A server that does not answer: who has the keys goes on, and who has not serves all other volumes.
    vault.process.pause()
    start_again(n1, "open")
    assert reads(n2, "old", PIECES) and reads(n2, "new", PIECES)
    with pytest.raises(CliError, match="no answer from Vault"):
        cluster.cli("volume", "create", "more", "64MiB", "--encrypt", node=n2)
    wait_for_problem(cluster, "new", n1, "no answer from Vault", "5 s")
    assert "is encrypted" in refused(n1, "new")
    vault.process.resume()
    wait_until(lambda: reads_now(n1, "new", PIECES), NOTICED_WITHIN_S, "n1's keys")

    # Nor does one that says no; a token is read anew.
    vault.seal()
    with pytest.raises(CliError, match="unsealed"):
        cluster.cli("volume", "create", "more", "64MiB", "--encrypt", node=n2)
    vault.unseal()
    private(folder / "token", vault.new_token("nothing"))
    with pytest.raises(CliError, match="permission denied.*transit/encrypt/azekura"):
        cluster.cli("volume", "create", "more", "64MiB", "--encrypt", node=n2)
    private(folder / "token", vault.token)
    cluster.cli("volume", "create", "more", "64MiB", "--encrypt", node=n2)

    # What belongs to another key, or was altered, does not open.
    old, new = records
    swapped = json.loads(json.dumps(old))
    swapped["generations"][0]["wrapped"] = new["generations"][0]["wrapped"]
    put_record(cluster, swapped)
    start_again(n1, "open")

    def told():
        problems = [problem_of(cluster, volume, n1) for volume in ["old", "new"]]
        return sorted(problems) if any("is not the key" in problem for problem in problems) else None

    assert wait_until(told, NOTICED_WITHIN_S, "the altered record")[0] == "", "the other one is served"
    put_record(cluster, old)

    # A node without the option says which it is.
    n1.options = ["--key-file", key_file(n1)]
    start_again(n1, "open")
    assert "started without --vault" in refused(n1, "old")
    cluster.stop()
    for secret in [vault.token, vault.root, "7" * 64]:
        found = [path for path in files_with(cluster, secret) if not path.endswith(".kek")]
        assert found == [], "nobody writes a secret anywhere"


def test_kmip_gives_the_key_out(make_cluster, folder, kmip):
    cluster = make_cluster(start=False, nodes=1, device_size="512MiB", config="etcd")
    [n1] = cluster.nodes
    keys = folder / "kmip-keys"
    first, second = kmip.create(2)
    keys.write_text(f"# ours\n1 {first}\n")
    certificate, private_key = kmip.client
    n1.options = ["--kmip", kmip.address, "--kmip-keys", keys, "--kmip-ca", kmip.authority.certificate]
    n1.options += ["--kmip-certificate", certificate, "--kmip-private-key", private_key]
    cluster.start()
    for name, options in [("open", []), ("safe", ["--encrypt"])]:
        cluster.cli("volume", "create", name, "64MiB", "--copies", 1, *options)
        write(n1, name, PIECES)
    assert by_provider(cluster) == {("kmip", 1): 1}
    keys.write_text(f"1 {first}\n2 {second}\n")
    assert cluster.json("kek", "rewrap")["rewrapped"] == 1
    assert by_provider(cluster) == {("kmip", 1): 0, ("kmip", 2): 1}
    [record] = keys_in(cluster)
    wrapping = record["generations"][0]
    assert wrapping["provider"] == "kmip" and wrapping["wrapped"].startswith("2:")

    # Without the server, and without the key.
    kmip.process.kill()
    assert reads(n1, "safe", PIECES), "who has it goes on"
    with pytest.raises(CliError, match="no answer from the KMIP server"):
        cluster.cli("volume", "create", "more", "64MiB", "--encrypt")
    start_again(n1, "open")
    wait_for_problem(cluster, "safe", n1, "no answer from the KMIP server")
    keys.write_text("2 999\n")
    kmip.start()
    with pytest.raises(CliError, match="key '999'.*there is no such key"):
        cluster.cli("volume", "create", "more", "64MiB", "--encrypt")
    keys.write_text(f"2 {second}\n")
    wait_until(lambda: reads_now(n1, "safe", PIECES), NOTICED_WITHIN_S, "the key")

    # Another client of the server may not have it.
    stranger, its_key = kmip.authority.sign("stranger", "clientAuth")
    certificate.write_bytes(stranger.read_bytes())
    private_key.write_bytes(its_key.read_bytes())
    with pytest.raises(CliError, match="refuses: key '2'"):
        cluster.cli("volume", "create", "more", "64MiB", "--encrypt")
