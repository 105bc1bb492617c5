"""Who may over iSCSI and NVMe: hosts that have a grant, hosts that prove a secret, and all others."""

import contextlib
import json
import threading
import time
from pathlib import Path

import pytest

from tools.harness import nvme
from tools.harness.cluster import HOST, run_cli
from tools.harness.dhchap import Refused
from tools.harness.iscsi import Session
from tools.harness.nvme import CSTS, DISCOVERY, SUBSYSTEM, Failed, Queue, controller, io_queue
from tools.harness.nvme import HOST as NQN
from tools.harness.process import free_port, wait_until
from tools.harness.run import run

MIB = 2**20
PREFIX = "iqn.2026-01.io.azekura:"
IQN = "iqn.2000-01.example:host"
FORBIDDEN, NOT_AUTHENTICATED, NOT_FOUND = 0x0202, 0x0201, 0x0203
INVALID_HOST, AUTHENTICATION_REQUIRED = 0x184, 0x191
SECRET, TARGETS = "the-secret-of-the-host", "and-the-targets-own"


@pytest.fixture(scope="module")
def guarded(module_cluster):
    """Two nodes that ask for grants, with both doors, and two volumes."""
    cluster = module_cluster(start=False, nodes=2, api_access="grants")
    for node in cluster.nodes:
        node.iscsi, node.nvme = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
        node.options = ["--iscsi", node.iscsi, "--nvme", node.nvme, "--ask-loopback-hosts"]
        node.options += ["--shards", "2", "--shards-without-devices"]
    cluster.start()
    for name in ("vol1", "vol2"):
        cluster.create_volume(name, "64MiB")
    wait_until(lambda: run_cli("ca", "show", api=cluster.first.api).returncode == 0, 30, "an authority")
    return cluster


@pytest.fixture
def hosts(guarded):
    """A function that lets a host in; all are removed after the test."""
    made = []

    def add(name, *options, node=None):
        made.append(name)
        return guarded.json("host", "add", name, *options, node=node)

    yield add
    for name in made:
        run_cli("host", "remove", name, api=guarded.first.api)
    left = lambda: [host["name"] for host in guarded.json("host", "list")]  # noqa: E731
    wait_until(lambda: not left(), 10, "the hosts to be gone")


def status(node, volume="vol1", name=IQN, isid=1):
    """What becomes of a login without CHAP."""
    with Session(node.iscsi, PREFIX + volume, isid=isid, name=name) as session:
        try:
            return session.login_status()
        except ConnectionError:
            # Its grant has ended in the middle of that.
            return None


def wait_status(node, wanted, **options):
    wait_until(lambda: status(node, **options) == wanted, 20, f"the status {wanted:#06x}")


def url(node, volume="", user="", secret="", **more):
    who = f"{user}%{secret}@" if user else ""
    path = f"/{PREFIX}{volume}/0" if volume else ""
    rest = "?" + "&".join(f"{key}={value}" for key, value in more.items()) if more else ""
    return f"iscsi://{who}{node.iscsi}{path}{rest}"


def inquiry(address, name=IQN):
    return run("iscsi-inq", "-i", name, address, check=False, within_s=60)


def listed(address, name=IQN):
    shown = run("iscsi-ls", "-i", name, address, check=False, within_s=60).stdout
    # Once by the portal of each node.
    return sorted({line.split()[0].removeprefix("Target:" + PREFIX) for line in shown.splitlines() if PREFIX in line})


def nvme_status(node, subsystem):
    try:
        Queue(node.nvme, subsystem).close()
    except Failed as failed:
        return failed.status & 0x7FF
    return 0


def nvme_listed(node):
    return sorted({name.removeprefix(SUBSYSTEM) for name, _, _ in nvme.listed(node.nvme)})


def test_who_has_no_grant_is_refused_and_learns_nothing(guarded):
    for node in guarded.nodes:
        for volume in ("vol1", "vol2", "none"):
            assert status(node, volume) == FORBIDDEN
            assert nvme_status(node, SUBSYSTEM + volume) == INVALID_HOST
        assert nvme_status(node, DISCOVERY) == INVALID_HOST
        assert listed(url(node)) == []
        failed = inquiry(url(node, "vol1"))
        assert failed.returncode != 0 and "Authorization failure" in failed.stdout + failed.stderr, failed


def test_a_name_that_has_a_grant_sees_and_opens_what_it_says(guarded, hosts):
    hosts("h1", "--iqn", IQN.upper().replace("IQN", "iqn"), "--volume", "vol1")
    hosts("h2", "--nqn", NQN, "--volume", "vol2")
    for node in guarded.nodes:
        wait_until(lambda node=node: listed(url(node)) == ["vol1"], 20, "vol1 to be listed")
        wait_until(lambda node=node: nvme_status(node, DISCOVERY) == 0, 20, "the NVMe host to be let in")
        assert nvme_listed(node) == ["vol2"]
        assert status(node, "vol2") == NOT_FOUND and status(node, "none") == NOT_FOUND
        assert status(node, name=IQN + "2") == FORBIDDEN
        assert nvme_status(node, SUBSYSTEM + "vol1") == nvme_status(node, SUBSYSTEM + "none") == 0x182
    assert inquiry(url(guarded.first, "vol1")).returncode == 0
    admin = controller(guarded.first.nvme, "vol2")
    queue = io_queue(guarded.first.nvme, "vol2", admin, 1)
    queue.write(0, b"x" * 4096)
    assert queue.read(0, 4096) == b"x" * 4096
    [each.close() for each in (queue, admin)]
    notes = guarded.json_of_unhealthy("status")["notes"]
    assert any("h1, h2" in note and "anybody can give himself" in note for note in notes), notes
    shown = guarded.cli("host", "list")
    assert IQN in shown and NQN in shown and "nothing" in shown, shown


def test_a_host_that_is_removed_while_it_writes_is_cut_off(guarded, hosts):
    hosts("h1", "--iqn", IQN)
    hosts("h2", "--nqn", NQN)
    node = guarded.first
    wait_status(node, 0)
    wait_until(lambda: nvme_status(node, DISCOVERY) == 0, 20, "the NVMe host to be let in")
    session = Session(node.iscsi, PREFIX + "vol1", isid=7, name=IQN).log_in()
    admin = controller(node.nvme, "vol2")
    queue = io_queue(node.nvme, "vol2", admin, 1)
    written = {"iscsi": 0, "nvme": 0}

    def write(kind, once):
        try:
            while True:
                once()
                written[kind] += 1
        except (ConnectionError, OSError):
            pass

    threads = [
        threading.Thread(target=write, args=("iscsi", lambda: session.status_of(session.send_write(0, b"a" * 4096)))),
        threading.Thread(target=write, args=("nvme", lambda: queue.write(0, b"b" * 4096))),
    ]
    [thread.start() for thread in threads]
    wait_until(lambda: min(written.values()) > 10, 20, "both to write")
    guarded.cli("host", "remove", "h1")
    guarded.cli("host", "remove", "h2")
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "it is cut off"
    with pytest.raises(ConnectionError):
        admin.receive()
    assert status(node) == FORBIDDEN
    [each.close() for each in (queue, admin)]
    session.socket.close()


def test_a_grant_that_takes_the_place_of_another_ends_its_sessions(guarded, hosts):
    hosts("h1", "--iqn", IQN)
    node = guarded.first
    wait_status(node, 0)
    with Session(node.iscsi, PREFIX + "vol1", isid=7, name=IQN).log_in() as session:
        guarded.cli("host", "remove", "h1")
        hosts("h3", "--iqn", IQN)
        with pytest.raises(ConnectionError):
            while True:
                session.status_of(session.send_read(0, 8))
    wait_status(node, 0)


def test_a_grant_ends_by_itself(guarded, hosts):
    hosts("h1", "--iqn", IQN, "--ends-after", "4s")
    node = guarded.first
    wait_status(node, 0)
    wait_status(node, FORBIDDEN)


def test_a_secret_is_proved(guarded, hosts, folder):
    path = folder / "secret"
    path.write_text(SECRET + "\n")
    hosts("h1", "--iqn", IQN, "--chap-secret-file", path, "--chap-user", "user", "--volume", "vol1")
    for node in guarded.nodes:
        good = url(node, "vol1", "user", SECRET)
        wait_until(lambda good=good: inquiry(good).returncode == 0, 20, "the host to be let in")
        assert listed(url(node, "", "user", SECRET)) == ["vol1"]
        # Without a secret, with a wrong one, as somebody else; and who jumps over the stage where it is asked for.
        for bad in [url(node, "vol1"), url(node, "vol1", "user", "x" + SECRET), url(node, "vol1", "User", SECRET)]:
            failed = inquiry(bad)
            assert failed.returncode != 0 and "Authentication failure" in failed.stdout + failed.stderr, failed
        assert status(node) == NOT_AUTHENTICATED
        assert listed(url(node)) == [] and listed(url(node, "", "user", "wrong-wrong-wrong")) == []
        assert inquiry(good, name=IQN + "2").returncode != 0, "it is this host's"
    assert not any("h1" in note for note in guarded.json_of_unhealthy("status")["notes"])
    assert "CHAP" in guarded.cli("host", "list")


def test_qemu_proves_a_secret_that_was_made(guarded, hosts, folder):
    made = hosts("h1", "--iqn", IQN, "--chap")
    secret, user = made["chap"]["secret"], made["chap"]["user"]
    assert (len(secret), user) == (16, IQN)
    (folder / "secret").write_text(secret)
    options = {
        "driver": "iscsi",
        "transport": "tcp",
        "portal": guarded.first.iscsi,
        "target": PREFIX + "vol1",
        "lun": 0,
    }
    options |= {"user": user, "password-secret": "s", "initiator-name": IQN}
    image = "json:" + json.dumps({"driver": "raw", "file": options})
    words = ["qemu-io", "--object", f"secret,id=s,file={folder / 'secret'}", image]
    tries = lambda: run(*words, "-c", "write -P 7 0 1M", "-c", "read -P 7 0 1M", check=False, within_s=60)  # noqa: E731
    wait_until(lambda: tries().returncode == 0, 30, "qemu to write")
    (folder / "secret").write_text("another-secret-of-16")
    assert tries().returncode != 0


def test_the_target_proves_itself(guarded, hosts, folder):
    (folder / "own").write_text(SECRET)
    (folder / "other").write_text(TARGETS)
    words = ["--iqn", IQN, "--chap-secret-file", folder / "own", "--chap-user", "user"]
    refused = run_cli("host", "add", "h0", *words, "--mutual-secret-file", folder / "own", api=guarded.first.api)
    assert refused.returncode != 0 and "one secret" in refused.stderr, refused
    hosts("h1", *words, "--mutual-secret-file", folder / "other", "--mutual-user", "store")
    node = guarded.first
    address = lambda **more: url(node, "vol1", "user", SECRET, **more)  # noqa: E731
    wait_until(lambda: inquiry(address()).returncode == 0, 20, "the host to be let in")
    assert inquiry(address(target_user="store", target_password=TARGETS)).returncode == 0
    for user, secret in (("store", SECRET), ("other", TARGETS)):
        assert inquiry(address(target_user=user, target_password=secret)).returncode != 0, "it is no proof"


def nvme_proved(node, *secrets, volume="vol1"):
    """Whether a host that knows these is let in: its own, and the cluster's."""
    try:
        with contextlib.closing(Queue(node.nvme, SUBSYSTEM + volume, secrets=secrets)) as queue:
            queue.get_property(CSTS)
            return True
    except (Refused, ConnectionError):
        return False
    except Failed as failed:
        # It is not known here yet.
        assert failed.status == INVALID_HOST, failed
        return False


def test_an_nvme_host_proves_a_secret(guarded, hosts, folder):
    made = hosts("db7", "--nqn", NQN, "--volume", "vol1", "--chap", "--mutual")
    own, cluster = made["chap"]["secret"], made["mutual"]["secret"]
    assert own.startswith("DHHC-1:00:") and own != cluster and made["grant"]["host"]["chap_user"] == NQN
    for node in guarded.nodes:
        wait_until(lambda node=node: nvme_proved(node, own), 20, "the host to be let in")
        assert nvme_proved(node, own, cluster)
        assert not nvme_proved(node, cluster) and not nvme_proved(node, own, own)
        assert not nvme_proved(node, own, volume="vol2"), "it proves who it is, and has no more than that"
        assert [name for name, _, _ in nvme.listed(node.nvme, secrets=[own])] == [SUBSYSTEM + "vol1"] * 2
    node = guarded.first
    # Who proves nothing is told that it has to, whatever it would like to have, and nothing else.
    for volume in ("vol1", "vol2", "none"):
        queue = Queue(node.nvme, SUBSYSTEM + volume)
        with pytest.raises(Failed) as failed:
            queue.get_property(CSTS)
        assert failed.value.status == AUTHENTICATION_REQUIRED
        queue.close()
    # Each queue proves it, and data goes both ways.
    admin = controller(node.nvme, "vol1", secrets=[own, cluster])
    queue = io_queue(node.nvme, "vol1", admin, 1, secrets=[own])
    queue.write(0, b"p" * 65536)
    assert queue.read(0, 65536) == b"p" * 65536
    unproved = io_queue(node.nvme, "vol1", admin, 2)
    assert unproved.status(0x02, [0, 0, 7], room=4096, namespace=1) == AUTHENTICATION_REQUIRED
    guarded.cli("host", "remove", "db7")
    with pytest.raises((ConnectionError, Failed)):
        while True:
            queue.read(0, 4096)
    [each.close() for each in (queue, admin, unproved)]
    log = "".join(node.log() for node in guarded.nodes)
    assert "wrong secret for DH-HMAC-CHAP" in log and own not in log and cluster not in log
    # One that was made elsewhere, by nvme gen-dhchap-key.
    secret = Path(folder) / "secret"
    secret.write_text(own.replace("DHHC-1:00:", "DHHC-1:02:") + "\n")
    hosts("db8", "--nqn", NQN, "--chap-secret-file", secret)
    wait_until(lambda: nvme_proved(node, secret.read_text().strip()), 20, "the host to be let in")
    assert not nvme_proved(node, own), "how the key is transformed is a part of it"


def test_secrets_are_sealed_in_the_configuration_and_in_no_log(guarded, hosts, folder):
    path = folder / "secret"
    path.write_text("never-seen-anywhere")
    hosts("h1", "--iqn", IQN, "--chap-secret-file", path, "--chap-user", "user")
    node = guarded.nodes[1]
    wait_until(lambda: inquiry(url(node, "vol1", "user", "never-seen-anywhere")).returncode == 0, 20, "the host")
    inquiry(url(node, "vol1", "user", "wrong-wrong-wrong"))
    for file in Path(guarded.folder).rglob("*"):
        if file.is_file() and file.stat().st_size < 64 * MIB and "device" not in str(file):
            assert b"never-seen-anywhere" not in file.read_bytes(), file
    assert "shown a wrong name or secret" in node.process.log_tail(200)


def test_who_tries_again_and_again_waits(guarded, hosts, folder):
    hosts("h1", "--iqn", IQN, "--chap", "--chap-user", "user")
    node = guarded.first
    wait_status(node, NOT_AUTHENTICATED)
    wrong = lambda: inquiry(url(node, "vol1", "user", "wrong-wrong-wrong"))  # noqa: E731
    # Each shard counts by itself.
    began, longest = time.monotonic(), 0
    while longest < 1:
        before = time.monotonic()
        assert wrong().returncode != 0
        longest = time.monotonic() - before
        assert time.monotonic() - began < 60, "nobody has waited"


def test_bad_hosts_are_refused(guarded, folder):
    path = folder / "secret"
    path.write_text("short")
    for words, told in [
        (["--iqn", "host"], "begins with"),
        (["--iqn", NQN], "--nqn"),
        (["--nqn", IQN], "--iqn"),
        ([], "required"),
        (["--iqn", IQN, "--chap-secret-file", path], "12 to 255"),
        (["--iqn", IQN, "--chap-user", "me"], "--chap"),
        (["--iqn", IQN, "--mutual"], "proves something himself"),
        (["--nqn", NQN, "--chap", "--chap-user", "me"], "cannot be used with"),
        (["--nqn", NQN, "--chap-secret-file", path], "gen-dhchap-key"),
    ]:
        done = run_cli("host", "add", "bad", *words, api=guarded.first.api)
        assert done.returncode != 0 and told in done.stderr, (words, done)
    assert guarded.json("host", "list") == []


def test_a_loopback_asks_nobody_unless_it_is_told_to(make_cluster):
    cluster = make_cluster(nodes=1, api_access="grants", start=False)
    node = cluster.first
    node.iscsi, node.nvme = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
    node.options = ["--iscsi", node.iscsi, "--nvme", node.nvme]
    cluster.start()
    cluster.create_volume("vol1", "64MiB", copies=1)
    wait_until(lambda: listed(url(node)) == ["vol1"], 20, "the volume to be listed")
    assert status(node) == 0 and nvme_status(node, SUBSYSTEM + "vol1") == 0


def test_an_open_cluster_is_open_but_for_hosts_that_it_knows(make_cluster):
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    node.iscsi, node.nvme = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
    node.options = ["--iscsi", node.iscsi, "--nvme", node.nvme, "--ask-loopback-hosts"]
    cluster.start()
    for name in ("vol1", "vol2"):
        cluster.create_volume(name, "64MiB", copies=1)
    wait_until(lambda: listed(url(node)) == ["vol1", "vol2"], 20, "the volumes to be listed")
    assert nvme_status(node, DISCOVERY) == 0 and status(node, name="whatever") == 0
    cluster.cli("host", "add", "h1", "--iqn", IQN, "--volume", "vol2")
    wait_until(lambda: listed(url(node)) == ["vol2"], 20, "the host's own volume alone to be listed")
    assert listed(url(node), name=IQN + "2") == ["vol1", "vol2"]


def test_a_node_that_comes_later_gets_the_key_from_others(make_cluster, folder):
    """Secrets are sealed by a key that is in no configuration: a node without it asks the others."""
    cluster = make_cluster(nodes=2, api_access="grants", start=False)
    for node in cluster.nodes:
        node.iscsi = f"{HOST}:{free_port()}"
        node.options = ["--iscsi", node.iscsi, "--ask-loopback-hosts"]
    cluster.start()
    cluster.create_volume("vol1", "64MiB")
    first, second = cluster.nodes
    # Either node makes the authority; until the other one has its key too, that one says to ask again in a moment.
    words = ["host", "add", "h1", "--iqn", IQN, "--chap", "--chap-user", "user"]
    wait_until(lambda: run_cli(*words, api=first.api).returncode == 0, 30, "the authority's key")
    wait_status(second, NOT_AUTHENTICATED)
    # Another authority takes over: what the former one's key has sealed is opened by that one's.
    cluster.cli("ca", "replace")
    second.stop()
    for file in (Path(second.data) / "identity").glob("authority-*"):
        file.unlink()
    second.start()
    wait_until(lambda: second.alive and (Path(second.data) / "identity" / "authority-1.pem").exists(), 60, "the key")
    wait_status(second, NOT_AUTHENTICATED)
