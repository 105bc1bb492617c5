"""Projects: another project's grant gets nothing and learns nothing, by whatever route and protocol; quotas hold."""

import http.client
import json
import threading
from pathlib import Path

import pytest

from tools.harness import nvme
from tools.harness.cluster import HOST, run_cli
from tools.harness.iscsi import Session
from tools.harness.nbd import Client
from tools.harness.nvme import DISCOVERY, SUBSYSTEM, Failed, Queue, controller, io_queue
from tools.harness.nvme import HOST as NQN
from tools.harness.process import free_port, wait_until
from tools.harness.run import run

DESCRIPTION = Path(__file__).parent.parent / "docs" / "api" / "openapi.json"
PREFIX = "iqn.2026-01.io.azekura:"
IQN = "iqn.2000-01.example:host"
NOT_FOUND = 0x0203
INVALID_PARAMETERS = 0x182
# In all names of what is not ours, and in nothing else.
SECRET = "seekrit"
RIVALS, PLAIN, OURS = f"rivals/{SECRET}", SECRET, "ours/v"
# What is asked about a volume where it stands in the body.
BODIES = {
    "/v1/volumes": lambda name: {"name": name, "size_bytes": 1 << 20},
    "/v1/volumes/{name}/resize": lambda name: {"size_bytes": 1 << 30},
    "/v1/volumes/{name}/attach": lambda name: {"node": "n1", "force": True},
    "/v1/volumes/{name}/unlock": lambda name: {"secret": "correct horse"},
    "/v1/volumes/{name}/secret": lambda name: {"secret": "correct horse", "new_secret": "battery staple"},
    "/v1/volumes/{name}/revert": lambda name: {"to": "s", "force": True},
    "/v1/volumes/{name}/clone": lambda name: {"name": "ours/clone", "from": "s"},
    "/v1/volumes/{name}/protect": lambda name: {"every_seconds": 3600, "keep_seconds": 7200},
    "/v1/volumes/{name}/limits": lambda name: {"iops": 1000},
    "/v1/snapshots": lambda name: {"volumes": [name], "name": "t"},
    "/v1/grants": lambda name: {"name": "g", "role": "user", "project": name.split("/")[0]},
    "/v1/keys": lambda name: {"name": "k", "role": "user", "key": "0" * 64, "volumes": [name]},
    "/v1/hosts": lambda name: {"name": "h", "host": "iqn.2000-01.example:h", "volumes": [name]},
}


@pytest.fixture(scope="module")
def guarded(module_cluster):
    """Two nodes that ask for grants at every door but one; two projects; a volume in each and in the default one."""
    cluster = module_cluster(start=False, nodes=2, api_access="grants")
    for node in cluster.nodes:
        node.iscsi, node.nvme, node.plain = (f"{HOST}:{free_port()}" for _ in range(3))
        node.options = ["--iscsi", node.iscsi, "--nvme", node.nvme, "--ask-loopback-hosts"]
        node.options += ["--nbd-transport", "tls", "--nbd-plain", node.plain]
        node.options += ["--shards", "2", "--shards-without-devices"]
    cluster.start()
    for project in ("ours", "rivals"):
        cluster.cli("project", "create", project)
    for name in (OURS, RIVALS, PLAIN):
        cluster.create_volume(name, "64MiB")
        cluster.cli("snapshot", "create", f"{name}@s")
    wait_until(lambda: run_cli("ca", "show", api=cluster.first.api).returncode == 0, 30, "an authority")
    return cluster


def ask(node, method, path, token, body=None):
    """One request through the port: status and text."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    connection = http.client.HTTPConnection(HOST, node.api_port, timeout=90)
    connection.request(method, path, json.dumps(body or {}).encode(), headers)
    answer = connection.getresponse()
    if path == "/v1/watch":
        # It has no end: as much as tells the whole state.
        text = "".join(answer.readline().decode() for _ in range(8))
    else:
        text = answer.read().decode()
    connection.close()
    return answer.status, text


def token(cluster, name, role, project):
    made = cluster.cli("token", "create", name, "--role", role, "--project", project).strip()
    for node in cluster.nodes:
        wait_until(lambda node=node: ask(node, "GET", "/v1/whoami", made)[0] == 200, 30, "the token everywhere")
    return made


def operations():
    """Every operation of the description: method and path."""
    for path, methods in json.loads(DESCRIPTION.read_text(encoding="utf-8"))["paths"].items():
        for method in methods:
            yield method.upper(), path


def named(path, name):
    """The path about a volume of this name, or about its project."""
    text = name.split("/")[0] if path.startswith("/v1/projects") else name
    return path.replace("{name}", text.replace("/", "%2F")).replace("{snapshot}", "s")


def test_every_operation_with_another_projects_token(guarded):
    before = guarded.json("volume", "list")
    assert {volume["name"] for volume in before} == {OURS, RIVALS, PLAIN}
    asked = 0
    for role in ("owner", "user", "csi"):
        ours = token(guarded, f"our-{role}", role, "ours")
        for number, (method, path) in enumerate(operations()):
            node = guarded.nodes[number % 2]
            for there, nowhere in ((RIVALS, "rivalz/seekrit"), (PLAIN, "seekrix")):
                body = BODIES.get(path, lambda _: {}) if method == "POST" else lambda _: {}
                status, text = ask(node, method, named(path, there), ours, body(there))
                asked += 1
                told = f"{role}: {method} {path} {there}: {status} {text}"
                about_it = "{name}" in path or there in str(body(there)) or "rivals" in str(body(there))
                if about_it:
                    assert 400 <= status < 500, told
                else:
                    assert SECRET not in text and "rivals" not in text, told
                if status >= 400:
                    other = ask(node, method, named(path, nowhere), ours, body(nowhere))
                    same = other[1].replace("rivalz", "rivals").replace("seekrix", there)
                    assert (status, text) == (other[0], same), told
    assert asked > 300
    seen = [volume["name"] for volume in json.loads(ask(guarded.first, "GET", "/v1/volumes", ours)[1])]
    assert seen == [OURS]
    after = guarded.json("volume", "list")
    same = lambda volumes: [(v["name"], v["uuid"], v["size_bytes"], v["snapshots"], v["generation"]) for v in volumes]  # noqa: E731
    assert same(after) == same(before), "nothing was done to them"


def url(node, volume, folder):
    return f"nbds://{HOST}:{node.nbd_port}/{volume}?tls-certificates={folder}"


def sees(node, folder):
    """What NBD lists."""
    shown = run("nbdinfo", "--json", "--list", url(node, "", folder), check=False, within_s=60)
    return {export["export-name"] for export in json.loads(shown.stdout)["exports"]} if shown.returncode == 0 else None


def opens(node, volume, folder):
    """Whether it opens, and what is told if not, without the name."""
    shown = run("nbdinfo", "--size", url(node, volume, folder), check=False, within_s=60)
    return shown.returncode == 0, shown.stderr.replace(volume, "…")


def test_nbd_with_another_projects_key(guarded):
    folder = guarded.folder / "our-key"
    new = ["key", "new", "our-key", "--project", "ours", "--out", folder]
    signed = lambda: run_cli(*new, api=guarded.first.api).returncode == 0  # noqa: E731
    wait_until(signed, 30, "the node to have the authority's key")
    for node in guarded.nodes:
        wait_until(lambda node=node: sees(node, folder) is not None, 30, "the key")
        assert sees(node, folder) == {OURS}
        assert opens(node, OURS, folder)[0] and opens(node, f"{OURS}@s", folder)[0]
        # The only one that is seen is the default export.
        assert opens(node, "", folder)[0]
        told = {opens(node, name, folder) for name in (RIVALS, PLAIN, f"{RIVALS}@s", f"{PLAIN}@s", "ours/none", "none")}
        assert len(told) == 1 and not told.pop()[0], told
    again = ["key", "add", "k", "--cert", folder / "client-cert.pem", "--project", "rivals"]
    refused = run_cli(*again, api=guarded.first.api)
    assert refused.returncode == 4 and "has a grant already" in refused.stderr and "our-key" not in refused.stderr
    # A list of volumes makes nothing one's own.
    refused = run_cli(
        "key", "new", "k", "--project", "ours", "--volume", RIVALS, "--out", guarded.folder / "k", api=guarded.first.api
    )
    assert refused.returncode == 4 and "no volume of the project 'ours'" in refused.stderr, refused.stderr


def test_a_door_that_asks_nobody_has_the_default_project(guarded):
    node = guarded.first
    shown = json.loads(run("nbdinfo", "--json", "--list", f"nbd://{node.plain}/").stdout)
    assert {export["export-name"] for export in shown["exports"]} == {PLAIN}
    for name in (OURS, RIVALS, f"{RIVALS}@s"):
        with pytest.raises(ConnectionError):
            Client(f"nbd://{node.plain}/{name}")
    # Who may come to the node's own socket, its file's mode says.
    for name in (OURS, RIVALS, PLAIN):
        with Client(node.uri(name)) as client:
            client.write(0, name.encode().ljust(4096))
            assert client.read(0, 4096) == name.encode().ljust(4096)


def login(node, volume):
    name = volume.replace("/", ":2f").replace("@", ":40")
    with Session(node.iscsi, PREFIX + name, name=IQN) as session:
        return session.login_status()


def test_iscsi_with_another_projects_host(guarded):
    guarded.cli("host", "add", "our-initiator", "--iqn", IQN, "--project", "ours")
    for node in guarded.nodes:
        wait_until(lambda node=node: login(node, OURS) == 0, 30, "the host to be let in")
        with Session(node.iscsi, "", name=IQN, discovers=True) as session:
            targets = {value for key, value in session.log_in().targets() if key == "TargetName"}
        assert targets == {f"{PREFIX}ours:2fv"}
        for name in (RIVALS, PLAIN, f"{RIVALS}@s", "ours/none", "none"):
            assert login(node, name) == NOT_FOUND, name
    with Session(guarded.first.iscsi, f"{PREFIX}ours:2fv", name=IQN, isid=2) as session:
        session.log_in().write(0, b"o" * 4096)
        assert session.read(0, 4096 // 512)[:4096] == b"o" * 4096


def nvme_status(node, subsystem):
    try:
        Queue(node.nvme, subsystem).close()
    except Failed as failed:
        return failed.status & 0x7FF
    return 0


def test_nvme_with_another_projects_host(guarded):
    guarded.cli("host", "add", "our-host", "--nqn", NQN, "--project", "ours")
    for node in guarded.nodes:
        wait_until(lambda node=node: nvme_status(node, DISCOVERY) == 0, 30, "the host to be let in")
        assert {name for name, _, _ in nvme.listed(node.nvme)} == {SUBSYSTEM + OURS}
        for name in (RIVALS, PLAIN, f"{RIVALS}@s", "ours/none", "none"):
            assert nvme_status(node, SUBSYSTEM + name) == INVALID_PARAMETERS, name
    admin = controller(guarded.first.nvme, OURS)
    queue = io_queue(guarded.first.nvme, OURS, admin, 1)
    queue.write(0, b"n" * 4096)
    assert queue.read(0, 4096) == b"n" * 4096
    [each.close() for each in (queue, admin)]


def test_an_owner_lets_no_host_in(guarded):
    owner = token(guarded, "our-giver", "owner", "ours")
    for name in (IQN, "iqn.2000-01.example:nobody"):
        status, text = ask(guarded.first, "POST", "/v1/hosts", owner, {"name": "h", "host": name})
        assert status == 403 and "administrator" in text, text


def test_quotas_hold_under_eight_creators(guarded):
    guarded.cli("project", "create", "small", "--volumes", "5", "--bytes", "1GiB", "--snapshots", "4")
    creating, over, outcomes = threading.Barrier(8), threading.Event(), []

    def create(number):
        creating.wait()
        node = guarded.nodes[number % 2]
        for turn in range(3):
            name = f"small/v{number}-{turn}"
            outcomes.append((name, run_cli("volume", "create", name, "100MiB", "--copies", "2", api=node.api)))

    def look():
        while not over.is_set():
            used = guarded.json("project", "show", "small")["used"]
            assert used["volumes"] <= 5 and used["bytes"] <= 1 << 30, used

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    looking = threading.Thread(target=look)
    [thread.start() for thread in [*threads, looking]]
    [thread.join() for thread in threads]
    over.set()
    looking.join()
    made = [name for name, outcome in outcomes if outcome.returncode == 0]
    assert len(made) == 5, [outcome.stderr for _, outcome in outcomes]
    refused = [outcome.stderr for _, outcome in outcomes if outcome.returncode != 0]
    assert all("'small' may have 5 volumes, has 5 volumes" in text for text in refused), refused
    assert "azekura project set small --volumes N" in refused[0]

    def snapshot(number):
        volume = made[number % 5]
        outcomes.append(run_cli("snapshot", "create", f"{volume}@s{number}", api=guarded.nodes[number % 2].api))

    outcomes.clear()
    threads = [threading.Thread(target=snapshot, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [outcome.returncode for outcome in outcomes].count(0) == 4, [outcome.stderr for outcome in outcomes]
    # The default project is shown as well, to those who have to do with it.
    default = guarded.json("project", "show", "default")
    assert default["name"] == "default" and PLAIN in default["volume_names"] and default["quota"] == {}, default
    assert default["used"]["volumes"] == len(default["volume_names"]), default
    project = guarded.json("project", "show", "small")
    assert project["used"] | {"iops": 0} == {
        "bytes": 500 << 20,
        "volumes": 5,
        "snapshots": 4,
        "iops": 0,
        "unlimited": 5,
    }
    grown = run_cli("volume", "resize", made[0], "800MiB", api=guarded.first.api)
    assert grown.returncode == 4 and "--bytes" in grown.stderr, grown.stderr
    for name in made:
        guarded.cli("volume", "delete", name, "--yes", "--force", "--snapshots")
    shown = guarded.cli("project", "list")
    assert "0 of 5" in shown and "0 of 4" in shown and "0B of 1GiB" in shown, shown
    guarded.cli("project", "delete", "small")
    assert "small" not in guarded.cli("project", "list")
