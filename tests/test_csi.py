"""The CSI driver of real nodes: the Kubernetes project's own suite, and what pods see of it."""

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tools.harness.cluster import run_cli
from tools.harness.csi import TOOLS, CsiError, Driver, Pod, as_device, mounted
from tools.harness.process import wait_until

GIB = 2**30
MIB = 2**20


@pytest.fixture(scope="module")
def started(module_cluster):
    # Volumes of the driver's classes promise no more than four times what there is.
    return module_cluster(device_size="2GiB")


@pytest.fixture(scope="module")
def controller(started):
    driver = Driver(started.first, "controller").start()
    yield driver
    driver.stop()


@pytest.fixture(scope="module")
def node(started):
    driver = Driver(started.first, "node").start()
    yield driver
    driver.stop()


@pytest.fixture(autouse=True)
def seen(request, started):
    """The nodes' logs go under a test that fails."""
    request.node.clusters = [started]


@pytest.fixture
def pod(controller, node, folder):
    """A function that makes pods' volumes; they are gone after the test, if the driver can still do that."""
    pods = []

    def make(name, use=None, **create):
        pods.append(Pod(controller, node, folder, name, use or mounted(), **create))
        return pods[-1]

    yield make
    for one in reversed(pods):
        one.end()


def loop_devices(node):
    """Loop devices of files in a driver's folder."""
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"], capture_output=True, text=True
    )
    return [line for line in listed.stdout.splitlines() if str(node.folder) in line]


def writes_arrive(folder):
    """Whether the kernel says that what is written below a folder is on the volume."""
    try:
        (folder / "late").write_text("y" * MIB)
    except OSError:
        return False
    return subprocess.run(["sync", "-f", folder], capture_output=True).returncode == 0


def code_of(call, *arguments, **options):
    with pytest.raises(CsiError) as caught:
        call(*arguments, **options)
    return caught.value.code


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("access", ["mount", "block"])
def test_the_suite_of_the_kubernetes_project(access, controller, node, started, folder):
    words = [TOOLS / "csi-sanity", "--ginkgo.no-color", "--csi.endpoint", node.socket]
    words += ["--csi.controllerendpoint", controller.socket, "--csi.testvolumeaccesstype", access]
    words += ["--csi.mountdir", folder / "mount", "--csi.stagingdir", folder / "staging"]
    (folder / "attributes.yaml").write_text('iops: "5000"\nbandwidth: 200MiB\nburst: 10s\n')
    words += ["--csi.testvolumemutableparameters", folder / "attributes.yaml"]
    words += ["--csi.testvolumesize", 256 * MIB, "--csi.testvolumeexpandsize", 512 * MIB]
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, f"{ended.stdout[-12000:]}\n{node.process.log_tail(60)}"
    summary = next(line for line in ended.stdout.splitlines() if " Passed | " in line)
    passed, failed = (int(part.split()[-2]) for part in summary.split("|")[:2])
    assert failed == 0 and passed >= 80, summary
    # Nothing is left, on the node and in the cluster.
    assert loop_devices(node) == []
    assert started.json("volume", "list") == []


@pytest.mark.root
@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs"])
def test_a_volume_goes_through_its_life(filesystem, pod, controller, node):
    use = mounted(filesystem, flags=["noatime"])
    first = pod(f"life-{filesystem}", use, size=512 * MIB).up()
    (first.target / "a").write_text("before")
    pod(f"small-{filesystem}", use, size=4096).up()  # It gets what its file system needs.
    before = first.total()
    if filesystem == "ext4":
        # It grows while it is mounted only by the hand of somebody with CAP_SYS_RESOURCE, which not every root has.
        first.down()
        grown = {"required_bytes": GIB}
        controller.call("Controller/ControllerExpandVolume", volume_id=first.volume, capacity_range=grown)
        first.up()
    else:
        # Before the volume has grown the node has nothing to do, and says so.
        assert code_of(first.grow_on_the_node, GIB) == "Unavailable"
        assert first.grow(GIB)["capacity_bytes"] == str(GIB)
        # Repeated, and with less, it stays as it is.
        assert first.grow(768 * MIB)["capacity_bytes"] == str(GIB)
    assert first.total() > before + 256 * MIB and (first.target / "a").read_text() == "before"
    subprocess.run(["sync", "-f", first.target], check=True)

    made = controller.call("Controller/CreateSnapshot", source_volume_id=first.volume, name=f"shot-{filesystem}")
    snapshot = made["snapshot"]
    assert snapshot["ready_to_use"] and snapshot["size_bytes"] == str(GIB)
    assert snapshot["snapshot_id"] == f"{first.volume}@shot-{filesystem}"
    (first.target / "a").write_text("after")
    assert code_of(controller.call, "Controller/DeleteVolume", volume_id=first.volume) == "FailedPrecondition"

    source = {"snapshot": {"snapshot_id": snapshot["snapshot_id"]}}
    restored = pod(f"restored-{filesystem}", use, size=GIB + 256 * MIB, volume_content_source=source)
    assert restored.made["capacity_bytes"] == str(GIB + 256 * MIB)
    restored.up()
    assert (restored.target / "a").read_text() == "before"
    assert restored.total() > first.total()
    first.down()
    assert code_of(first.delete) == "FailedPrecondition"  # It has a snapshot.
    clone = pod(f"clone-{filesystem}", use, size=GIB, volume_content_source={"volume": {"volume_id": first.volume}})
    clone.up()
    assert (clone.target / "a").read_text() == "after"
    controller.call("Controller/DeleteSnapshot", snapshot_id=snapshot["snapshot_id"])
    assert (restored.target / "a").read_text() == "before"


@pytest.mark.root
def test_a_device_goes_through_its_life(pod):
    one = pod("device", as_device(), size=256 * MIB).up()
    with open(one.target, "r+b") as device:
        device.write(b"x" * 4096)
        device.flush()
    assert one.total() == 256 * MIB
    one.grow(512 * MIB)
    assert one.total() == 512 * MIB
    with open(one.target, "rb") as device:
        assert device.read(4096) == b"x" * 4096
        assert device.seek(0, 2) == 512 * MIB
    one.down()
    one.up()
    with open(one.target, "rb") as device:
        assert device.read(4096) == b"x" * 4096


@pytest.mark.root
def test_every_call_may_be_repeated(pod, controller, node):
    one = pod("repeated")
    again = {"name": "repeated", "capacity_range": {"required_bytes": 256 * MIB}}
    again |= {"volume_capabilities": [one.use]}
    assert controller.call("Controller/CreateVolume", **again)["volume"] == one.made
    again["parameters"] = {"copies": "3"}
    assert code_of(controller.call, "Controller/CreateVolume", **again) == "AlreadyExists"
    assert code_of(one.stage) == "FailedPrecondition"  # It is not published.
    for step in (one.publish_to_node, one.stage, one.publish):
        assert step() == step()
    (one.target / "a").write_text("x")
    for step in (one.stage, one.publish):
        step()
    assert (one.target / "a").read_text() == "x"
    assert len(loop_devices(node)) == 1
    request = {"source_volume_id": one.volume, "name": "repeated-1"}
    snapshot = controller.call("Controller/CreateSnapshot", **request)
    assert controller.call("Controller/CreateSnapshot", **request) == snapshot
    other = pod("repeated-other")
    request["source_volume_id"] = other.volume
    assert code_of(controller.call, "Controller/CreateSnapshot", **request) == "AlreadyExists"
    for _ in range(2):
        controller.call("Controller/DeleteSnapshot", snapshot_id=snapshot["snapshot"]["snapshot_id"])
    for step in (one.unpublish, one.unstage, one.unpublish_from_node, one.delete):
        assert step() == step() == {}
    assert loop_devices(node) == []


@pytest.mark.root
def test_a_node_plugin_that_is_killed_goes_on(pod, node):
    one = pod("killed").up()
    (one.target / "a").write_text("x")
    other = pod("killed-before-publish")
    other.publish_to_node()
    other.stage()
    node.kill()
    # The pod does not notice.
    assert (one.target / "a").read_text() == "x"
    (one.target / "b").write_text("y")
    node.start()
    other.publish()
    (other.target / "c").write_text("z")
    one.stage()
    one.publish()
    assert (one.target / "b").read_text() == "y"
    assert one.total() > 0
    one.unpublish()
    node.kill()
    node.start()
    one.unstage()
    assert len(loop_devices(node)) == 1


@pytest.mark.root
def test_a_program_that_has_ended_is_told_and_replaced(pod, node):
    one = pod("ended").up()
    (one.target / "a").write_text("x")
    assert writes_arrive(one.target)
    (number,) = (int(path.read_text()) for path in (node.folder / "state").glob("*/pid"))
    os.kill(number, signal.SIGKILL)
    wait_until(lambda: not writes_arrive(one.target), 30, "errors of the device")
    told = node.call("Node/NodeGetVolumeHealth", volume_id=one.volume)["volume_health"]["health_statuses"]
    assert [(entry["status"], entry["reason"]) for entry in told] == [("INACCESSIBLE", "DeviceEnded")]
    with pytest.raises(CsiError, match="still mounted"):
        one.stage()
    one.down()
    one.up()
    assert (one.target / "a").read_text() == "x"
    assert writes_arrive(one.target)


@pytest.mark.root
def test_a_pod_goes_on_when_its_node_restarts(pod, started):
    one = pod("restarted").up()
    (one.target / "a").write_text("x")
    assert writes_arrive(one.target)
    started.first.kill()
    started.first.start()
    (one.target / "b").write_text("y")
    assert writes_arrive(one.target)
    started.wait_healthy()
    one.down()
    one.up()
    assert ((one.target / "a").read_text(), (one.target / "b").read_text()) == ("x", "y")


@pytest.mark.root
def test_a_secret_of_the_storage_class_opens_a_volume(pod, controller, node, started):
    secret, other = {"encryptionPassphrase": "seekrit horse battery"}, {"encryptionPassphrase": "another horse battery"}
    by_secret = {"parameters": {"encrypt": "secret"}}
    for wrong in ({**by_secret}, {"secrets": secret}, {**by_secret, "secrets": {"encryptionPassphrase": "short"}}):
        request = {"name": "secret", "volume_capabilities": [mounted()], **wrong}
        assert code_of(controller.call, "Controller/CreateVolume", **request) == "InvalidArgument"
    one = pod("secret", **by_secret, secrets=secret)
    one.publish_to_node()
    for wrong in ({}, other):
        one.secrets = wrong
        assert code_of(one.stage) == "InvalidArgument"
    one.secrets = secret
    one.stage()
    one.publish()
    (one.target / "a").write_text("x")
    assert writes_arrive(one.target)

    # What is made from it has its key.
    request = {"name": "secret-clone", "volume_capabilities": [mounted()], **by_secret}
    request["volume_content_source"] = {"volume": {"volume_id": one.volume}}
    with pytest.raises(CsiError, match="has its key, and so its secret") as caught:
        controller.call("Controller/CreateVolume", secrets=other, **request)
    assert caught.value.code == "InvalidArgument"
    controller.call("Controller/CreateVolume", secrets=secret, **request)
    controller.call("Controller/DeleteVolume", volume_id="secret-clone")

    def waits():
        shown = run_cli("volume", "show", "secret", "--json", api=started.first.api, program=started.program)
        return json.loads(shown.stdout).get("key_missing") if shown.returncode == 0 else None

    # The node forgets it with its process. Kubelet publishes again, which fails in no case.
    assert waits() is None
    started.first.kill()
    started.first.start()
    assert "waits for its secret" in wait_until(waits, 60, "the volume to wait")
    assert any("waits for its secret" in problem for problem in started.json_of_unhealthy("status")["problems"])
    one.secrets = other
    assert one.publish() == {}
    assert "waits for its secret" in waits()
    one.secrets = secret
    assert one.publish() == {} and waits() is None
    started.wait_healthy()
    one.down()
    one.up()
    assert (one.target / "a").read_text() == "x"
    seen = [part.log() for part in started.nodes] + [part.process.log_tail(100000) for part in (controller, node)]
    seen.append(started.cli("audit", "--json"))
    assert not [text for text in seen if "horse battery" in text]


@pytest.mark.root
def test_what_has_something_on_it_is_not_formatted(pod):
    one = pod("foreign", as_device(), size=512 * MIB).up()
    with open(one.target, "r+b") as device:
        device.write(b"\x01" * 512)
    one.down()
    one.use = mounted()
    one.publish_to_node()
    with pytest.raises(CsiError, match="not formatted") as caught:
        one.stage()
    assert caught.value.code == "FailedPrecondition"
    one.unstage()
    one.use = as_device()
    one.up()
    subprocess.run(["mkfs.xfs", "-q", "-f", one.target], check=True)
    one.down()
    one.use = mounted("ext4")
    one.publish_to_node()
    with pytest.raises(CsiError, match="has xfs on it"):
        one.stage()
    one.use = mounted("xfs")
    one.stage()


@pytest.mark.root
def test_who_may_write(pod, controller, node, folder):
    single = pod("single", mounted(mode="SINGLE_NODE_SINGLE_WRITER")).up()
    assert code_of(single.publish, folder / "second") == "FailedPrecondition"
    several = pod("several", mounted(mode="SINGLE_NODE_MULTI_WRITER")).up()
    several.publish(folder / "third", readonly=True)
    (several.target / "a").write_text("x")
    with pytest.raises(OSError):
        (folder / "third" / "a").write_text("y")
    several.unpublish(folder / "third")
    assert not (folder / "third").exists()
    refused = code_of(pod, "no-cluster-fs", mounted(mode="MULTI_NODE_MULTI_WRITER"))
    assert refused == "InvalidArgument"


@pytest.mark.root
def test_nodes_that_share_a_device_see_each_others_writes(pod, controller, started, folder):
    second = Driver(started.nodes[1], "node").start()
    here = pod("shared", as_device("MULTI_NODE_MULTI_WRITER"))
    here.up()
    assert code_of(here.grow, 512 * MIB) == "FailedPrecondition"  # nbdfuse keeps its size.
    here.node, there = second, here.node
    target = here.folder / "second"
    here.publish_to_node()
    here.stage()
    here.publish(target)
    for number in range(3):
        with open(here.target, "r+b", buffering=0) as device:
            device.write(bytes([number]) * 4096)
            os.fsync(device.fileno())
        with open(target, "rb", buffering=0) as device:
            assert device.read(4096) == bytes([number]) * 4096
    here.unpublish(target)
    here.unstage()
    here.unpublish_from_node()
    here.node = there
    second.stop()


@pytest.mark.slow
@pytest.mark.root
def test_a_dead_nodes_volume_goes_to_another(pod, controller, started):
    one = pod("taken").up()
    (one.target / "a").write_text("x")
    request = {"volume_id": one.volume, "volume_capability": one.use}
    elsewhere = {**request, "node_id": "n2"}
    assert code_of(controller.call, "Controller/ControllerPublishVolume", **elsewhere) == "FailedPrecondition"
    # Kubernetes gives the node up: it takes the volume from it without a word of the node's.
    one.unpublish_from_node()
    controller.call("Controller/ControllerPublishVolume", **elsewhere)
    listed = controller.call("Controller/ListVolumes")["entries"]
    nodes = next(entry["status"]["published_node_ids"] for entry in listed if entry["volume"]["volume_id"] == "taken")
    assert nodes == ["n2"]
    # What the former node still writes does not arrive.
    assert not writes_arrive(one.target)
    controller.call("Controller/ControllerUnpublishVolume", volume_id=one.volume, node_id="n2")


def test_groups_of_snapshots(controller):
    volumes = []
    for number in range(3):
        request = {"name": f"grouped-{number}", "volume_capabilities": [mounted()]}
        volumes.append(controller.call("Controller/CreateVolume", **request)["volume"]["volume_id"])
    request = {"name": "together", "source_volume_ids": volumes[:2]}
    group = controller.call("GroupController/CreateVolumeGroupSnapshot", **request)["group_snapshot"]
    assert [one["source_volume_id"] for one in group["snapshots"]] == volumes[:2]
    assert controller.call("GroupController/CreateVolumeGroupSnapshot", **request)["group_snapshot"] == group
    request["source_volume_ids"] = volumes
    assert code_of(controller.call, "GroupController/CreateVolumeGroupSnapshot", **request) == "AlreadyExists"
    members = [one["snapshot_id"] for one in group["snapshots"]]
    named = {"group_snapshot_id": group["group_snapshot_id"], "snapshot_ids": members}
    assert controller.call("GroupController/GetVolumeGroupSnapshot", **named)["group_snapshot"] == group
    wrong = {**named, "snapshot_ids": members[:1]}
    assert code_of(controller.call, "GroupController/GetVolumeGroupSnapshot", **wrong) == "InvalidArgument"
    listed = controller.call("Controller/ListSnapshots", snapshot_id=members[0])["entries"]
    assert listed[0]["snapshot"]["group_snapshot_id"] == group["group_snapshot_id"]
    for _ in range(2):
        controller.call("GroupController/DeleteVolumeGroupSnapshot", **named)
    assert code_of(controller.call, "GroupController/GetVolumeGroupSnapshot", **named) == "NotFound"
    for volume in volumes:
        controller.call("Controller/DeleteVolume", volume_id=volume)


def test_capacity_and_health(controller, node):
    told = controller.call("Controller/ControllerGetCapabilities")["capabilities"]
    assert "GET_CAPACITY" in {capability["rpc"]["type"] for capability in told}
    capacity = controller.call("Controller/GetCapacity")
    assert 0 < int(capacity["available_capacity"]) <= 3 * 2 * GIB * 4 // 2
    three = controller.call("Controller/GetCapacity", parameters={"copies": "3"})
    assert int(three["available_capacity"]) < int(capacity["available_capacity"])
    with pytest.raises(CsiError, match="no storage class 'none'"):
        controller.call("Controller/GetCapacity", parameters={"class": "none"})
    controller.call("Controller/CreateVolume", name="sound", volume_capabilities=[mounted()])
    health = controller.call("Controller/ControllerGetVolumeHealth", volume_id="sound")["volume_health"]
    assert health == {"volume_id": "sound", "health_statuses": []}
    assert health in controller.call("Controller/ControllerListVolumeHealth")["entries"]
    controller.call("Controller/DeleteVolume", volume_id="sound")
    info = node.call("Node/NodeGetInfo")
    assert info["node_id"] == "n1"
    assert info["accessible_topology"]["segments"]["topology.azekura.io/host"] == "n1"


def test_calls_at_the_same_time(controller):
    """Each is done or told to come again, and at last there is one volume."""

    def create(_):
        try:
            request = {"name": "raced", "volume_capabilities": [mounted()]}
            return controller.call("Controller/CreateVolume", **request)["volume"]["volume_id"]
        except CsiError as error:
            assert error.code == "Aborted", error
            return None

    with ThreadPoolExecutor(8) as threads:
        outcomes = set(threads.map(create, range(16)))
    assert outcomes - {None} == {"raced"}
    listed = controller.call("Controller/ListVolumes")["entries"]
    assert [entry["volume"]["volume_id"] for entry in listed].count("raced") == 1
    controller.call("Controller/DeleteVolume", volume_id="raced")


def authority(cluster):
    """The certificate of the cluster's authority, when there is one."""
    shown = run_cli("ca", "show", "--json", api=cluster.first.api, program=cluster.program)
    return json.loads(shown.stdout).get("certificate") if shown.returncode == 0 else None


def test_a_token_and_a_certificate(make_cluster):
    cluster = make_cluster(api_access="grants", nodes=1)
    token = cluster.folder / "token"
    token.touch(0o600)
    token.write_text(cluster.cli("token", "create", "driver", "--role", "csi"))
    certificate = cluster.folder / "ca.pem"
    shown = wait_until(lambda: authority(cluster), 30, "an authority")
    certificate.write_text(shown)
    driver = Driver(cluster.first, "controller", ["--token-file", token, "--ca", certificate])
    driver.api = f"https://127.0.0.1:{cluster.first.api_port}"
    driver.start()
    capability = {"volume_capabilities": [mounted()], "parameters": {"copies": "1"}}
    assert driver.call("Controller/CreateVolume", name="mine", **capability)["volume"]["volume_id"] == "mine"
    # The role does not see the cluster: what needs that is not claimed.
    told = driver.call("Controller/ControllerGetCapabilities")["capabilities"]
    claimed = {capability["rpc"]["type"] for capability in told}
    assert "CREATE_DELETE_VOLUME" in claimed and "GET_CAPACITY" not in claimed
    assert code_of(driver.call, "Controller/GetCapacity") == "PermissionDenied"
    cluster.cli("token", "revoke", "driver")
    assert code_of(driver.call, "Controller/ListVolumes") == "Unauthenticated"
    # A new one is taken without a restart.
    token.write_text(cluster.cli("token", "create", "driver2", "--role", "csi"))
    assert len(driver.call("Controller/ListVolumes")["entries"]) == 1
    driver.stop()
