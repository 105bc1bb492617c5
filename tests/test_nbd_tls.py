"""NBD over TLS: real clients with certificates, and such as have none, a wrong one, or talk before TLS."""

import datetime
import json
import socket
import ssl
import subprocess
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tools.harness.cluster import HOST, run_cli
from tools.harness.nbd import (
    OPT_ABORT,
    OPT_EXPORT_NAME,
    OPT_GO,
    OPT_INFO,
    OPT_LIST,
    OPT_STARTTLS,
    REP_ACK,
    REP_ERR_POLICY,
    REP_ERR_TLS_REQD,
    REP_ERR_UNSUP,
    Client,
)
from tools.harness.process import free_port, wait_until
from tools.harness.raw_nbd import Handshake
from tools.harness.relay import Relay
from tools.harness.run import run

MIB = 1 << 20
# What a client says to begin TLS.
WISH = b"IHAVEOPT\0\0\0\x05\0\0\0\0"
KNOWN = b"this text is known, and nobody on the way is to read it. "


@pytest.fixture
def guarded(make_cluster):
    """A node of two shards that asks for grants, with TLS on its NBD port and two volumes."""
    cluster = make_cluster(nodes=1, api_access="grants", start=False)
    cluster.first.options = ["--nbd-transport", "tls", "--shards", "2", "--shards-without-devices"]
    return with_volumes(cluster)


def with_volumes(cluster):
    cluster.start()
    for name in ("vol1", "vol2"):
        cluster.create_volume(name, "64MiB", copies=1)
    node = cluster.first
    shown = lambda: run_cli("ca", "show", "--json", api=node.api)  # noqa: E731
    wait_until(lambda: shown().returncode == 0, 30, "an authority")
    authority = json.loads(shown().stdout)["certificate"]
    wait_until(lambda: knows_itself(node, authority), 30, "a certificate by the authority")
    return cluster


def knows_itself(node, authority):
    context = ssl.create_default_context(cadata=authority)
    try:
        with socket.create_connection((HOST, node.api_port), timeout=30) as plain:
            context.wrap_socket(plain, server_hostname=HOST).close()
    except ssl.SSLError:
        return False
    return True


def new_key(cluster, name, *options):
    """A folder with a key that was let in, as libnbd and QEMU want it."""
    folder = cluster.folder / name
    cluster.cli("key", "new", name, "--out", folder, *options)
    return folder


def url(node, volume, folder, port=None):
    return f"nbds://{HOST}:{port or node.nbd_port}/{volume}?tls-certificates={folder}"


def info(node, volume, folder, port=None):
    return run("nbdinfo", "--size", url(node, volume, folder, port), check=False, within_s=60)


def opens(node, volume, folder):
    return info(node, volume, folder).returncode == 0


def lists(node, folder):
    return run("nbdinfo", "--list", url(node, "", folder), check=False, within_s=60).returncode == 0


def wait_open(node, volume, folder):
    wait_until(lambda: opens(node, volume, folder), 30, f"{volume} for {folder.name}")


def context(folder, version=None, certificate=None):
    """TLS of a client, as Python has it."""
    made = ssl.create_default_context(cafile=folder / "ca-cert.pem")
    if certificate is None:
        certificate = (folder / "client-cert.pem", folder / "client-key.pem")
    if certificate:
        made.load_cert_chain(*certificate)
    if version:
        made.minimum_version = made.maximum_version = version
    return made


def uri(node, volume, port=None):
    return f"nbd://{HOST}:{port or node.nbd_port}/{volume}"


def self_signed(folder, name, key, days_from, days_to):
    """A certificate with this key, in a file."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days_from))
        .not_valid_after(now + datetime.timedelta(days=days_to))
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = folder / f"{name}-key.pem"
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path, secret


def test_real_clients_read_and_write(guarded, folder):
    node = guarded.first
    certificates = new_key(guarded, "vm1")
    assert sorted(path.name for path in certificates.iterdir()) == ["ca-cert.pem", "client-cert.pem", "client-key.pem"]
    assert (certificates / "client-key.pem").stat().st_mode & 0o777 == 0o600
    wait_open(node, "vol1", certificates)
    assert info(node, "vol1", certificates).stdout.strip() == str(64 * MIB)
    listed = json.loads(run("nbdinfo", "--json", "--list", url(node, "", certificates)).stdout)
    assert {export["export-name"] for export in listed["exports"]} == {"vol1", "vol2"}
    assert listed["TLS"] is True

    # Somebody on the way sees nothing of it.
    middle = Relay(node.nbd_port)
    source, back = folder / "source", folder / "back"
    source.write_bytes((KNOWN * (16 * MIB // len(KNOWN) + 1))[: 16 * MIB] + bytes(48 * MIB))
    run("nbdcopy", "--flush", source, url(node, "vol1", certificates, middle.port))
    run("nbdcopy", url(node, "vol1", certificates, middle.port), back)
    assert back.read_bytes() == source.read_bytes()
    kept = middle.kept
    # The name would be among the first bytes of a connection; in 32 MiB of noise four given bytes are not so rare.
    assert len(kept) > 32 * MIB and KNOWN[:32] not in kept and b"vol1" not in kept[: 64 * 1024]
    middle.close()
    with Client(node.uri("vol1")) as client:
        assert client.read(0, MIB) == source.read_bytes()[:MIB], "the same volume, through the socket"

    # QEMU looks whether its own certificate fits its authority.
    options = f"driver=nbd,host={HOST},port={node.nbd_port},export=vol1,tls-creds=t"
    tls = ["--object", f"tls-creds-x509,id=t,dir={certificates},endpoint=client,verify-peer=on"]
    shown = run("qemu-img", "info", *tls, "--image-opts", options).stdout
    assert "64 MiB" in shown
    compared = run("qemu-img", "compare", *tls, "--image-opts", options, f"driver=raw,file.filename={source}")
    assert "identical" in compared.stdout
    commands = ["-c", "write -P 0x5a 1M 3M", "-c", "read -P 0x5a 1M 3M", "-c", "flush"]
    done = run("qemu-io", *tls, "--image-opts", *commands, options).stdout
    assert "verification failed" not in done and done.count("bytes at offset") == 2, done


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_both_versions_of_tls(guarded, version):
    node = guarded.first
    certificates = new_key(guarded, "vm1")
    wait_open(node, "vol1", certificates)
    for _ in range(4):
        # Either shard.
        with Client(uri(node, "vol1"), tls=context(certificates, version)) as client:
            assert client.socket.version() == version.name.replace("_", ".")
            data = b"\x37" * (2 * MIB)
            client.write(MIB, data)
            assert client.read(MIB, len(data)) == data


def test_nothing_is_served_before_tls(guarded):
    node = guarded.first
    plain = run("nbdinfo", "--size", uri(node, "vol1"), check=False, within_s=60)
    assert plain.returncode != 0, plain.stdout
    with Handshake(uri(node, "")) as handshake:
        for option in (OPT_LIST, OPT_INFO, OPT_GO, 8, 9, 10, 77):
            kind, text = handshake.ask(option, b"\0\0\0\x04vol1\0\0")
            assert kind == REP_ERR_TLS_REQD and b"TLS" in text, option
        assert handshake.ask(OPT_ABORT)[0] == REP_ACK
    with Handshake(uri(node, "")) as handshake:
        handshake.send(OPT_EXPORT_NAME, b"vol1")
        with pytest.raises(ConnectionError):
            handshake.receive(1)
    # Bytes behind the wish for TLS are somebody else's.
    for behind in (b"x", b"\x16\x03\x01\x00\xc8", b"IHAVEOPT\0\0\0\x03\0\0\0\0"):
        with Handshake(uri(node, "")) as handshake:
            handshake.socket.sendall(WISH + behind)
            with pytest.raises(ConnectionError):
                handshake.receive(1)
    # Whoever has begun and goes on in clear.
    with Handshake(uri(node, "")) as handshake:
        assert handshake.ask(OPT_STARTTLS)[0] == REP_ACK
        handshake.send(OPT_LIST)
        said = b"".join(iter(lambda: handshake.socket.recv(4096), b""))
        assert b"vol1" not in said and said[:1] == b"\x15", said


def test_a_client_is_not_talked_down(guarded):
    node = guarded.first
    certificates = new_key(guarded, "vm1")
    wait_open(node, "vol1", certificates)

    def refuse(data, client):
        """Says to the client, in the node's name, that there is no TLS, and to the node that the client wants none."""
        if WISH in data:
            client.sendall(bytes.fromhex("0003e889045565a9") + b"\0\0\0\x05" + REP_ERR_UNSUP.to_bytes(4) + bytes(4))
        return data.replace(WISH, b"")

    middle = Relay(node.nbd_port, refuse)
    assert info(node, "vol1", certificates, middle.port).returncode != 0
    assert b"vol1" not in middle.kept
    # A client that lets itself be talked down is not served.
    with Handshake(uri(node, "", middle.port)) as handshake:
        assert handshake.ask(OPT_STARTTLS)[0] == REP_ERR_UNSUP
        assert handshake.ask(OPT_INFO, b"\0\0\0\x04vol1\0\0")[0] == REP_ERR_TLS_REQD
    middle.close()

    def add(data, _client):
        """Agrees on something before TLS that the client does not know of."""
        return data.replace(WISH, WISH + b"IHAVEOPT\0\0\0\x08\0\0\0\0")

    middle = Relay(node.nbd_port, add)
    assert info(node, "vol1", certificates, middle.port).returncode != 0
    middle.close()


def refusal(node, tls, volume="vol1"):
    with pytest.raises(ConnectionError) as told:
        Client(uri(node, volume), tls=tls)
    return str(told.value).replace(volume, "…")


def test_who_has_no_grant_learns_nothing(guarded, make_cluster, folder):
    node = guarded.first
    certificates = new_key(guarded, "vm1")
    wait_open(node, "vol1", certificates)
    other = with_volumes(make_cluster(nodes=1, api_access="grants", node_options=["--nbd-transport", "tls"]))
    foreign = new_key(other, "vm1")
    stranger = self_signed(folder, "stranger", ec.generate_private_key(ec.SECP256R1()), -1, 30)
    of_other = (foreign / "client-cert.pem", foreign / "client-key.pem")
    for certificate in ((), stranger, of_other):
        tls = context(certificates, certificate=certificate)
        told = {refusal(node, tls, name) for name in ("vol1", "vol2", "none")}
        assert len(told) == 1 and f"{REP_ERR_POLICY:#x}" in told.pop(), told
    # The other way round: the client does not believe a node of another cluster.
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(uri(other.first, "vol1"), tls=context(certificates))
    assert "certificate" in info(other.first, "vol1", certificates).stderr
    # A certificate of the client's that ends, or has not begun, says nothing of its key: the grant does.
    key = ec.generate_private_key(ec.SECP384R1())
    ended = self_signed(folder, "ended", key, -9, -1)
    guarded.cli("key", "add", "old", "--cert", ended[0])
    wait_until(lambda: works(node, context(certificates, certificate=ended)), 30, "the key")
    unborn = self_signed(folder, "unborn", key, 1, 30)
    assert works(node, context(certificates, certificate=unborn))
    taken = run_cli("key", "add", "again", "--cert", unborn[0], api=node.api)
    assert taken.returncode == 4 and "the key is old's already" in taken.stderr, taken.stderr
    secret = run_cli("key", "add", "secret", "--key", ended[1], api=node.api)
    assert secret.returncode == 1 and "private key" in secret.stderr, secret.stderr


def works(node, tls, volume="vol1"):
    try:
        with Client(uri(node, volume), tls=tls) as client:
            client.write(0, b"x" * 4096)
            return client.read(0, 4096) == b"x" * 4096
    except (ConnectionError, OSError):
        return False


def test_a_key_is_for_its_volumes_and_until_it_is_revoked(guarded):
    node = guarded.first
    one = new_key(guarded, "one", "--volume", "vol1")
    seer = new_key(guarded, "seer", "--role", "operator")
    for certificates in (one, seer):
        wait_until(lambda certificates=certificates: lists(node, certificates), 30, certificates.name)
    listed = json.loads(run("nbdinfo", "--json", "--list", url(node, "", one)).stdout)
    assert [export["export-name"] for export in listed["exports"]] == ["vol1"]
    guarded.cli("snapshot", "create", "vol1@monday")
    guarded.cli("snapshot", "create", "vol2@monday")
    wait_open(node, "vol1@monday", one)
    unknown = {refusal(node, context(one), name) for name in ("vol2", "vol2@monday", "none")}
    assert len(unknown) == 1, unknown
    assert "opens none" in refusal(node, context(seer))

    listed = guarded.json("key", "list")
    assert [(key["name"], key["role"], key["volumes"]) for key in listed] == [
        ("one", "user", ["vol1"]),
        ("seer", "operator", None),
    ]
    assert guarded.json("token", "list") == []
    with Client(uri(node, "vol1"), tls=context(one)) as client, Client(node.uri("vol1")) as local:
        client.write(0, b"before" * 1000)
        guarded.cli("key", "revoke", "one")
        with pytest.raises((ConnectionError, OSError)):
            for _ in range(3000):
                client.read(0, 4096)
                time.sleep(0.01)
        assert local.read(0, 6) == b"before", "who is asked for no key goes on"
    refusal(node, context(one))
    assert "GrantRevoke" in str(guarded.json("audit"))


def test_a_grant_ends_while_its_client_is_connected(guarded):
    node = guarded.first
    certificates = new_key(guarded, "soon", "--for", "20s")
    wait_open(node, "vol1", certificates)
    with Client(uri(node, "vol1"), tls=context(certificates)) as client:
        with pytest.raises((ConnectionError, OSError)):
            for _ in range(6000):
                client.read(0, 4096)
                time.sleep(0.01)
    refusal(node, context(certificates))


def test_the_same_key_at_the_api(guarded):
    node = guarded.first
    whole, some = new_key(guarded, "whole"), new_key(guarded, "some", "--volume", "vol1")

    def status(certificates, path):
        words = ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}"]
        words += ["--cacert", certificates / "ca-cert.pem"]
        words += ["--cert", certificates / "client-cert.pem", "--key", certificates / "client-key.pem"]
        return run(*words, f"https://{HOST}:{node.api_port}{path}").stdout

    assert [status(whole, path) for path in ("/v1/whoami", "/v1/volumes", "/v1/settings")] == ["200", "200", "403"]
    assert [status(some, path) for path in ("/v1/whoami", "/v1/volumes", "/v1/settings")] == ["200", "403", "403"]
    guarded.cli("key", "revoke", "whole")
    wait_until(lambda: status(whole, "/v1/volumes") == "401", 30, "the end of the key")


def test_another_authority_cuts_nobody_off(guarded):
    node = guarded.first
    before = new_key(guarded, "before")
    wait_open(node, "vol1", before)
    with Client(uri(node, "vol1"), tls=context(before)) as client:
        client.write(0, b"a" * 4096)
        guarded.cli("ca", "replace")
        after = new_key(guarded, "after")
        wait_open(node, "vol1", after)
        assert client.read(0, 4096) == b"a" * 4096
        client.write(0, b"b" * 4096)
        assert client.read(0, 4096) == b"b" * 4096
    # Whoever knows the former authority goes on trusting, and his key has its grant.
    assert works(node, context(before))
    wait_open(node, "vol1", before)


def test_an_open_cluster_lets_anybody_in_over_tls(make_cluster, folder):
    cluster = make_cluster(nodes=1, start=False)
    cluster.first.options = ["--nbd-transport", "tls", "--nbd-plain", f"0.0.0.0:{free_port()}"]
    node = with_volumes(cluster).first
    shown = cluster.json("status")
    endpoints = cluster.json("volume", "show", "vol1")["endpoints"]
    secured = [endpoint["uri"] for endpoint in endpoints if endpoint["protocol"] == "nbds"]
    assert secured == [f"nbds://{HOST}:{node.nbd_port}/vol1"]
    assert any("without TLS" in note and "0.0.0.0" in note for note in shown["notes"]), shown["notes"]
    authority = folder / "ca-cert.pem"
    authority.write_text(json.loads(run_cli("ca", "show", "--json", api=node.api).stdout)["certificate"])
    anonymous = ssl.create_default_context(cafile=authority)
    assert works(node, anonymous)
    plain = node.options[-1].replace("0.0.0.0", HOST)
    with Client(f"nbd://{plain}/vol1") as client:
        assert client.read(0, 4096) == b"x" * 4096
    # A key that has a grant has no more than that.
    some = new_key(cluster, "some", "--volume", "vol2")
    wait_until(lambda: not works(node, context(some)), 30, "the grant")
    assert works(node, context(some), "vol2")


def test_handshakes_that_do_not_end_are_bounded(guarded):
    node = guarded.first
    certificates = new_key(guarded, "vm1")
    wait_open(node, "vol1", certificates)
    before = node.process.resident_bytes()
    with Client(uri(node, "vol1"), tls=context(certificates)) as client, Client(node.uri("vol2")) as local:
        silent = []
        # Each takes the room that a handshake has, and says no more.
        greeting = b"\x16\x03\x01\x3e\x80\x01\x00\xff\xff" + bytes(16_000)
        for number in range(700):
            handshake = Handshake(uri(node, ""))
            silent.append(handshake)
            if number % 100 == 0:
                time.sleep(0.3)
            try:
                if handshake.ask(OPT_STARTTLS)[0] == REP_ACK:
                    handshake.socket.sendall(greeting)
            except (ConnectionError, OSError):
                pass
        assert node.process.resident_bytes() - before < 256 * MIB
        client.write(0, b"c" * MIB)
        assert client.read(0, MIB) == b"c" * MIB, "who is there goes on"
        local.write(0, b"d" * MIB)
        # The node ends them by itself.
        wait_open(node, "vol1", certificates)
        for handshake in silent:
            handshake.socket.close()
    assert "panicked" not in node.log()
    assert sum("handshakes" in line for line in node.log().splitlines()) < 60, "it is not told each time"


def test_wrong_options_are_told(guarded):
    node = guarded.first
    for options, told in ((["--nbd-transport", "both"], "--nbd-plain"), (["--nbd-transport", "ssl"], "plain or tls")):
        words = [word for word in node.arguments() if word not in ("--nbd-transport", "tls")]
        done = subprocess.run([guarded.program, *words, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and told in done.stderr, done.stderr
