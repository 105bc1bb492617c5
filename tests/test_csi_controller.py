"""What the CSI controller tells backup programs of changed blocks, and what it finds that nobody in Kubernetes owns."""

import json
import random
import uuid
from contextlib import contextmanager

import pytest

from tools.harness.certificates import Authority
from tools.harness.cluster import run_cli
from tools.harness.csi import TOOLS, CsiError, Driver, as_device, mounted
from tools.harness.kubernetes_api import CORE, GROUPS, SNAPSHOTS, STORAGE, KubernetesApi
from tools.harness.nbd import Client

pytestmark = pytest.mark.skipif(not (TOOLS / "csi-call").exists(), reason="there is no csi-call: ./dev test has it")

BLOCK, MIB = 4096, 2**20
ALLOCATED, DELTA = "SnapshotMetadata/GetMetadataAllocated", "SnapshotMetadata/GetMetadataDelta"


@pytest.fixture(scope="module")
def cluster(module_cluster):
    return module_cluster()


@pytest.fixture(scope="module")
def controller(cluster):
    driver = Driver(cluster.first, "controller").start()
    yield driver
    driver.stop()


@pytest.fixture(autouse=True)
def seen(request, cluster):
    """The nodes' logs go under a test that fails."""
    request.node.clusters = [cluster]


@contextmanager
def refused(code):
    with pytest.raises(CsiError) as caught:
        yield caught
    assert caught.value.code == code, caught.value


class Image:
    """A volume, and what it should hold, block by block. Blocks that are written never hold the same twice."""

    def __init__(self, cluster, controller, name, size):
        self.cluster, self.controller, self.name = cluster, controller, name
        self.draw = random.Random(name)
        self.blocks = {}
        self.sizes = {}
        self.snapshots = {}
        self.size = size

    def change(self, writes, trims=(), node=None):
        with Client((node or self.cluster.first).uri(self.name)) as client:
            for block in writes:
                self.blocks[block] = self.draw.randbytes(BLOCK)
                client.write(block * BLOCK, self.blocks[block])
            for block in trims:
                self.blocks.pop(block, None)
                client.trim(block * BLOCK, BLOCK)
            client.flush()

    def snap(self, name):
        made = self.controller.call("Controller/CreateSnapshot", source_volume_id=self.name, name=name)
        handle = made["snapshot"]["snapshot_id"]
        self.snapshots[handle] = (dict(self.blocks), self.size)
        return handle


def differs(before, after):
    return {block for block in {*before, *after} if before.get(block) != after.get(block)}


def told(controller, method, size, start=0, most=0, **which):
    """The blocks of all ranges; on the way, that they are as the specification wants them."""
    answers = controller.stream(method, starting_offset=start, max_results=most, **which)
    assert answers and {one["block_metadata_type"] for one in answers} == {"VARIABLE_LENGTH"}
    assert {int(one["volume_capacity_bytes"]) for one in answers} == {size}
    assert all(len(one["block_metadata"]) <= most for one in answers) or most == 0
    blocks, until = set(), start // BLOCK * BLOCK
    for part in (part for one in answers for part in one["block_metadata"]):
        offset, length = int(part["byte_offset"]), int(part["size_bytes"])
        assert offset >= until and length > 0 and offset + length > start and offset % BLOCK == length % BLOCK == 0
        until = offset + length
        blocks.update(range(offset // BLOCK, until // BLOCK))
    assert not blocks or until <= size
    return blocks


def delta(controller, image, base, target, start=0, most=0, truth=None):
    (blocks, _), (after, size) = (truth or image.snapshots[base]), image.snapshots[target]
    found = told(controller, DELTA, size, start, most, base_snapshot_id=base, target_snapshot_id=target)
    assert found == {block for block in differs(blocks, after) if start < block * BLOCK + BLOCK <= size}


def test_changed_blocks_are_told_exactly(cluster, controller):
    request = {"volume_capabilities": [as_device()], "capacity_range": {"required_bytes": 40 * MIB}}
    assert controller.call("Controller/CreateVolume", name="blocks", **request)["volume"]["volume_id"] == "blocks"
    services = [one.get("service") for one in controller.call("Identity/GetPluginCapabilities")["capabilities"]]
    assert {"type": "SNAPSHOT_METADATA_SERVICE"} in services
    image = Image(cluster, controller, "blocks", 40 * MIB)
    cluster.wait_healthy()
    empty = image.snap("empty")
    assert told(controller, ALLOCATED, 40 * MIB, snapshot_id=empty) == set()
    # The first and the last block, a run over the end of a chunk, and single ones.
    image.change([0, *range(1020, 1030), 3000, 3002, 3004, 40 * 256 - 1])
    first = image.snap("first")
    image.change([1025, 3002, 7000], trims=[1020, 3000, 3004])
    second = image.snap("second")
    grown = {"required_bytes": 48 * MIB}
    controller.call("Controller/ControllerExpandVolume", volume_id="blocks", capacity_range=grown)
    image.size = 48 * MIB
    cluster.wait_healthy()
    image.change([48 * 256 - 1, 3000], trims=[7000])
    third = image.snap("third")

    for handle, (blocks, size) in image.snapshots.items():
        assert told(controller, ALLOCATED, size, snapshot_id=handle) == set(blocks), handle
    for base, target in [(empty, first), (first, second), (second, third), (first, third), (first, first)]:
        delta(controller, image, base, target)
    delta(controller, image, third, first)  # Backwards, to a smaller volume: what lies behind its end is not named.
    # From anywhere on one gets the rest, however few ranges a message may have.
    for start in (4096, 1025 * BLOCK + 1, 4 * MIB, 3003 * BLOCK, 40 * MIB - 1, 40 * MIB):
        delta(controller, image, first, second, start, most=1)
        rest = {block for block in image.snapshots[first][0] if block * BLOCK + BLOCK > start}
        assert told(controller, ALLOCATED, 40 * MIB, start, 2, snapshot_id=first) == rest
    # One in between is deleted: what differs stays the same.
    controller.call("Controller/DeleteSnapshot", snapshot_id=second)
    delta(controller, image, first, third)

    clone = {"volume_content_source": {"snapshot": {"snapshot_id": first}}, **request}
    controller.call("Controller/CreateVolume", name="blocks-clone", **clone)
    cluster.wait_healthy()
    branch = Image(cluster, controller, "blocks-clone", 40 * MIB)
    branch.blocks = dict(image.snapshots[first][0])
    branch.change([5, 1021])
    delta(controller, branch, first, branch.snap("branch"), truth=image.snapshots[first])

    controller.call("Controller/CreateVolume", name="stranger", **request)
    other = controller.call("Controller/CreateSnapshot", source_volume_id="stranger", name="other")
    pair = {"base_snapshot_id": first, "target_snapshot_id": third}
    for code, wrong in [
        ("NotFound", {"base_snapshot_id": second}),
        ("NotFound", {"target_snapshot_id": "blocks@10 minutes ago"}),
        ("NotFound", {"target_snapshot_id": "blocks"}),
        ("InvalidArgument", {"base_snapshot_id": ""}),
        ("InvalidArgument", {"max_results": -1}),
        ("InvalidArgument", {"base_snapshot_id": other["snapshot"]["snapshot_id"]}),
        ("OutOfRange", {"starting_offset": -1}),
        ("OutOfRange", {"starting_offset": 48 * MIB + 1}),
    ]:
        with refused(code):
            controller.stream(DELTA, **{**pair, **wrong})
    for code, wrong in [
        ("NotFound", {"snapshot_id": second}),
        ("InvalidArgument", {}),
        ("OutOfRange", {"snapshot_id": first, "starting_offset": 40 * MIB + 1}),
    ]:
        with refused(code):
            controller.stream(ALLOCATED, **wrong)


def test_blocks_of_an_encrypted_volume_are_told_as_those_of_any(cluster, controller):
    secret = cluster.folder / "secret"
    secret.write_text("seekrit horse battery")
    cluster.cli("volume", "create", "sealed", "16MiB", "--encrypt", "--secret-file", secret)
    cluster.cli("volume", "attach", "sealed", "--node", cluster.first.name)
    cluster.cli("volume", "unlock", "sealed", "--secret-file", secret)
    cluster.wait_healthy()
    image = Image(cluster, controller, "sealed", 16 * MIB)
    image.change([1, 2, 3])
    first = image.snap("sealed-1")
    image.change([2, 2000], trims=[3])
    second = image.snap("sealed-2")
    delta(controller, image, first, second)
    assert told(controller, ALLOCATED, 16 * MIB, snapshot_id=second) == set(image.blocks)


@pytest.fixture
def kubernetes():
    api = KubernetesApi()
    yield api
    api.stop()


def orphans(cluster, api, *options, older_than="0s"):
    """What the command finds, and what it says where it fails."""
    words = ["csi", "orphans", "--json", "--kubernetes", api.url, "--older-than", older_than, *options]
    ended = run_cli(*words, api=cluster.first.api, program=cluster.program)
    found = json.loads(ended.stdout) if ended.stdout else {"orphans": []}
    return {(one["kind"], one["name"]): one for one in found["orphans"]}, ended.stderr, found.get("notes")


def make(controller, name):
    request = {"volume_capabilities": [mounted()], "capacity_range": {"required_bytes": 16 * MIB}}
    return controller.call("Controller/CreateVolume", name=name, **request)["volume"]["volume_id"]


def test_what_nobody_owns_is_shown_and_deleted(cluster, controller, kubernetes):
    one, two, wanted, claimed = (f"pvc-{uuid.UUID(int=number)}" for number in range(4))
    for name in (one, two, wanted, claimed, "by-hand"):
        make(controller, name)
    ids = [str(uuid.UUID(int=number)) for number in range(7, 10)]
    shot = {}
    for volume, uid in ((one, ids[0]), (wanted, ids[1]), (wanted, ids[2])):
        request = {"source_volume_id": volume, "name": f"snapshot-{uid}"}
        shot[uid] = controller.call("Controller/CreateSnapshot", **request)["snapshot"]["snapshot_id"]
    node = {"volume_capability": mounted(), "node_id": "n1"}
    for volume in (two, wanted, claimed, "by-hand"):
        controller.call("Controller/ControllerPublishVolume", volume_id=volume, **node)
    kubernetes.add_volume(wanted)
    kubernetes.add_volume("elsewhere", driver="another.driver")
    kubernetes.add(f"{CORE}/persistentvolumeclaims", name="c", uid=claimed.removeprefix("pvc-"))
    kubernetes.add(f"{STORAGE}/csinodes", name="machine-1", drivers=[{"name": "csi.azekura.io", "nodeID": "n1"}])
    source = {"persistentVolumeName": claimed}
    kubernetes.add(f"{STORAGE}/volumeattachments", name="a", nodeName="machine-1", source=source)
    handle = {"snapshotHandle": shot[ids[1]]}
    kubernetes.add(f"{SNAPSHOTS}/v1/volumesnapshotcontents", name="s", status=handle)
    left = {("attachment", two), ("attachment", wanted), ("volume", one), ("volume", two)}
    left |= {("snapshot", shot[ids[0]]), ("snapshot", shot[ids[2]])}

    found, errors, notes = orphans(cluster, kubernetes)
    assert set(found) == left and errors == "" and notes == []
    assert not any(one["deleted"] or "stays" in one for one in found.values()), found
    assert all("limit=" in path for path in kubernetes.asked if "/v1/" in path)
    young, _, _ = orphans(cluster, kubernetes, "--delete", "--only-kubernetes", older_than="1d")
    assert set(young) == left and not any(one["deleted"] for one in young.values())
    assert {one["stays"] for (kind, _), one in young.items() if kind != "volume"} == {"it is not yet 1day old"}

    # Whatever Kubernetes does not tell: nothing is said and nothing deleted.
    lists = list(kubernetes.lists)
    page = f"{CORE}/persistentvolumes?limit=500&continue=1"
    trouble = [(path, (500, b"{}")) for path in lists] + [(path, (403, b"no")) for path in lists]
    trouble += [(page, (410, b'{"message": "gone"}')), (page, (200, b"{")), (page, (200, b"{}"))]
    trouble += [(lists[0], (200, b'{"kind": "List"}')), (SNAPSHOTS, (503, b"")), (SNAPSHOTS, (200, b"{}"))]
    trouble += [(GROUPS, (403, b"")), (lists[0], (404, b"{}")), (page, (302, b""))]
    same = json.dumps({"kind": "List", "metadata": {"continue": "1"}, "items": []}).encode()
    for path, answer in [*trouble, (page, (200, same))]:
        kubernetes.wrong = {path: answer}
        found, errors, _ = orphans(cluster, kubernetes, "--delete", "--only-kubernetes")
        assert found == {} and "nothing was deleted" in errors, (path, answer, errors)
    kubernetes.wrong = {}
    kubernetes.lists.pop(f"{SNAPSHOTS}/v1/volumesnapshotcontents")
    found, _, notes = orphans(cluster, kubernetes)
    assert {kind for kind, _ in found} == {"attachment", "volume"} and "knows no snapshots" in notes[0]
    kubernetes.lists[f"{SNAPSHOTS}/v1/volumesnapshotcontents"] = [{"status": handle}]
    # Another Kubernetes' volumes must not go.
    assert "--only-kubernetes" in orphans(cluster, kubernetes, "--delete")[1]
    assert "is it the right Kubernetes" in orphans(cluster, kubernetes, "--delete", "--project=x", "--driver-name=y")[1]
    found, _, _ = orphans(cluster, kubernetes, "--delete", "--project", "other")
    assert found == {}

    # A client that is there keeps what it uses.
    with Client(cluster.first.uri(two)):
        found, errors, _ = orphans(cluster, kubernetes, "--delete", "--only-kubernetes")
        assert "clients use it" in found["attachment", two]["stays"]
        assert "attached to n1" in found["volume", two]["stays"]
        gone = {key for key, value in found.items() if value["deleted"]}
        assert gone == left - {("attachment", two), ("volume", two)} and errors == ""
    volumes = {volume["name"]: volume for volume in cluster.json("volume", "list")}
    assert one not in volumes and {two, wanted, claimed, "by-hand"} <= set(volumes)
    assert volumes[wanted]["attachments"] == [] and len(volumes[claimed]["attachments"]) == 1
    assert [snapshot["name"] for snapshot in cluster.json("snapshot", "list", wanted)] == [f"snapshot-{ids[1]}"]

    kubernetes.stop()
    found, errors, _ = orphans(cluster, kubernetes, "--delete", "--only-kubernetes")
    assert found == {} and "Kubernetes does not tell" in errors and "nothing was deleted" in errors


def test_kubernetes_is_known_by_its_authority_and_its_name(cluster, folder):
    ours, other = Authority(folder / "ours"), Authority(folder / "other")
    token = folder / "token"
    token.write_text("seekrit\n")
    signed = ours.sign("kubernetes", "serverAuth")
    api, elsewhere = KubernetesApi(*signed), KubernetesApi(*signed, host="127.0.0.2")
    ask = "--kubernetes-token-file", token, "--kubernetes-ca"
    found, errors, _ = orphans(cluster, api, *ask, ours.certificate)
    assert errors == "" and set(api.shown) == {"Bearer seekrit"}
    api.shown.clear()
    for server, authority, about in [(api, other, "invalid peer certificate"), (elsewhere, ours, "not valid for name")]:
        found, errors, _ = orphans(cluster, server, *ask, authority.certificate)
        assert found == {} and server.shown == [] and about in errors and "seekrit" not in errors, errors
    api.stop()
    elsewhere.stop()
    elsewhere.url = "http://10.0.0.1:6443"
    assert "are not sent to" in orphans(cluster, elsewhere, *ask, ours.certificate)[1]
