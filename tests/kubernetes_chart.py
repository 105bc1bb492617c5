"""The chart in a real Kubernetes (./dev kubernetes test): from nothing to a volume with data, and that volume's life.

The tests are one story, in this order: they leave to each other what they have made.
"""

import json
import re
import time

import pytest

from tools.harness.process import wait_until
from tools.kubernetes.client import (
    NAMESPACE,
    WITHIN_S,
    address_of,
    apply,
    azekura,
    bare,
    claim,
    delete,
    get,
    helm,
    in_pod,
    kubectl,
    pod,
    reaches,
    ready,
    rolled_out,
    run,
)
from tools.kubernetes.place import MACHINE, ZONE

INSTALLED_WITHIN_S = 60
VALUES = {
    "etcd": {"machines": [MACHINE]},
    "node": {"storage": {"deviceSize": "6GiB"}, "siteFromZone": True},
    # The kernels that this runs on have no NVMe/TCP and no NBD.
    "csi": {"attach": "fuse", "controller": {"replicas": 1}},
    "snapshots": {"groups": True},
    # ext4 grows while it is mounted only by somebody with CAP_SYS_RESOURCE, which not every root has.
    "storageClasses": [
        {"name": "azekura", "parameters": {"copies": "1", "csi.storage.k8s.io/fstype": "xfs"}},
        # For tools/kubernetes/driver-small.yaml.
        {"name": "small", "parameters": {"copies": "1", "csi.storage.k8s.io/fstype": "ext4"}},
        # For tools/kubernetes/driver-immediate.yaml.
        {"name": "immediate", "volumeBindingMode": "Immediate", "parameters": {"copies": "1"}},
    ],
    "volumeAttributesClasses": [{"name": "bronze", "parameters": {"iops": "500", "bandwidth": "20MiB"}}],
}

PLACE = {"topology.azekura.io/site": ZONE, "topology.azekura.io/host": MACHINE}
TOLD_OF_ROOM = {"csi": {**VALUES["csi"], "storageCapacity": True}}


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_there():
    if "azekura" in run("helm", "list", "-A", "-q"):
        pytest.exit("the chart is installed already: ./dev kubernetes down, then up and test", returncode=2)


def install(what="install", **changed):
    helm(what, {**VALUES, **changed})


def test_from_nothing_to_a_volume_with_data():
    began = time.monotonic()
    install()
    apply(claim("one"), pod("writer", "one", "echo written > /data/file; sync; sleep 1000000"))
    ready("pod", "writer")
    wait_until(lambda: "written" in in_pod("writer", "cat /data/file"), 10, "the file")
    took = time.monotonic() - began
    print(f"\nfrom helm install to a written file: {took:.1f} s")
    assert get("pvc", "one")["status"]["phase"] == "Bound"
    assert " /data xfs " in in_pod("writer", "cat /proc/mounts")
    # A bound of the machine that this was written on, without anybody beside it.
    if took > INSTALLED_WITHIN_S:
        print(f"that is longer than {INSTALLED_WITHIN_S} s")
    assert took < 5 * INSTALLED_WITHIN_S


def test_the_cluster_that_the_chart_has_made_is_guarded():
    status = json.loads(azekura("status", "--json"))
    assert status["transport"] == "tls" and status["api_access"] == "grants", status
    for name in ("azekura-node", "azekura-csi-node"):
        state = get("daemonset", name, NAMESPACE)["status"]
        assert state["numberReady"] == state["desiredNumberScheduled"] == 1
    assert get("deployment", "azekura-csi-controller", NAMESPACE)["status"]["readyReplicas"] == 1


def ports_that_the_stranger_reaches():
    ports = (("etcd", 2379), ("etcd", 2380), ("node", 7101), ("node", 7180))
    return [port for component, port in ports if reaches("stranger", address_of(component), port)]


def test_strangers_reach_no_port():
    apply(bare("stranger"))
    ready("pod", "stranger")
    assert ports_that_the_stranger_reaches() == []


def test_a_pod_that_is_made_anew_sees_its_data():
    delete("pod/writer")
    apply(pod("writer", "one"))
    ready("pod", "writer")
    assert in_pod("writer", "cat /data/file") == "written\n"


def test_a_volume_grows_while_it_is_used():
    def blocks():
        return int(in_pod("writer", "df -k /data | tail -1 | awk '{print $2}'"))

    before = blocks()
    kubectl("patch", "pvc", "one", "-p", '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}')
    wait_until(lambda: get("pvc", "one")["status"]["capacity"]["storage"] == "2Gi", WITHIN_S, "the claim")
    wait_until(lambda: blocks() > before * 1.8, WITHIN_S, "the file system")
    assert in_pod("writer", "cat /data/file") == "written\n"


def test_a_snapshot_is_restored():
    snapshot = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s"}}
    spec = {"volumeSnapshotClassName": "azekura", "source": {"persistentVolumeClaimName": "one"}}
    apply({**snapshot, "spec": spec})
    ready("volumesnapshot", "s", "jsonpath={.status.readyToUse}=true")
    in_pod("writer", "echo later > /data/file; sync")
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    apply(claim("restored", "2Gi", dataSource=source), pod("restored", "restored"))
    ready("pod", "restored")
    assert in_pod("restored", "cat /data/file") == "written\n"
    assert in_pod("writer", "cat /data/file") == "later\n"


def test_a_claim_is_cloned():
    source = {"kind": "PersistentVolumeClaim", "name": "one"}
    apply(claim("clone", "2Gi", dataSource=source), pod("clone", "clone"))
    ready("pod", "clone")
    assert in_pod("clone", "cat /data/file") == "later\n"
    in_pod("clone", "echo clone > /data/file; sync")
    assert in_pod("writer", "cat /data/file") == "later\n"


def test_a_claim_is_limited_by_a_class():
    kubectl("patch", "pvc", "one", "-p", '{"spec":{"volumeAttributesClassName":"bronze"}}')
    current = "currentVolumeAttributesClassName"
    wait_until(lambda: get("pvc", "one")["status"].get(current) == "bronze", WITHIN_S, "the class")
    volume = get("pvc", "one")["spec"]["volumeName"]
    shown = json.loads(azekura("volume", "show", volume, "--json"))
    assert shown["limits"] == {"iops": 500, "bytes_per_second": 20 << 20}, shown


def test_a_node_that_restarts_is_waited_for():
    before = in_pod("writer", "echo before > /data/before; sync; cat /data/before")
    old = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/component=node", "-o", "json"))
    kubectl("-n", NAMESPACE, "delete", "pod", old["items"][0]["metadata"]["name"])
    # Written meanwhile: the request waits for the node.
    in_pod("writer", "echo meanwhile > /data/meanwhile; sync")
    rolled_out("daemonset", "azekura-node")
    assert in_pod("writer", "cat /data/before /data/meanwhile") == before + "meanwhile\n"


def test_an_upgrade_changes_what_it_is_told_to():
    install("upgrade", networkPolicy={"enabled": False})
    assert "azekura" not in kubectl("-n", NAMESPACE, "get", "networkpolicy", "-o", "name")
    # What has kept the stranger away were the policies.
    wait_until(lambda: len(ports_that_the_stranger_reaches()) == 4, WITHIN_S, "all ports")
    delete("pod/stranger")
    assert in_pod("writer", "cat /data/file") == "later\n"


def storage_class(name, binding, **parameters):
    """Not one of the chart's: its classes of Azekura are made by the test."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    parameters |= {"csi.storage.k8s.io/fstype": "xfs"}
    return {**kind, "provisioner": "csi.azekura.io", "volumeBindingMode": binding, "parameters": parameters}


def test_a_volume_is_made_near_its_pod():
    assert PLACE.items() <= get("node", MACHINE)["metadata"]["labels"].items()
    for name, home in (("away", ["--home", "zone-b"]), ("near", ["--home", ZONE]), ("anywhere", [])):
        azekura("class", "create", name, "--copies", "1", *home)
    for binding in ("WaitForFirstConsumer", "Immediate"):
        name = f"near-{binding.lower()}"
        apply(storage_class(name, binding, **{"class": "away,near,anywhere"}), claim(name, storageClassName=name))
        apply(pod(name, name))
        ready("pod", name)
        volume = get("pv", get("pvc", name)["spec"]["volumeName"])
        assert "nodeAffinity" not in volume["spec"], "it can be used from everywhere"
        made = json.loads(azekura("volume", "show", volume["spec"]["csi"]["volumeHandle"], "--json"))
        assert made["class"] == "near", binding
        delete(f"pod/{name}", f"pvc/{name}", f"storageclass/{name}")


def why_it_waits(name):
    def told():
        conditions = get("pod", name)["status"].get("conditions", [])
        return next(
            (each["message"] for each in conditions if each["type"] == "PodScheduled" and "message" in each), None
        )

    return wait_until(told, WITHIN_S, f"the scheduler's word on pod {name}")


def test_a_pod_whose_volume_has_no_room_waits():
    install("upgrade", **TOLD_OF_ROOM)
    rolled_out("deployment", "azekura-csi-controller")
    apply(storage_class("far", "WaitForFirstConsumer", **{"class": "away"}))

    def room():
        items = json.loads(kubectl("-n", NAMESPACE, "get", "csistoragecapacities", "-o", "json"))["items"]
        return {item["storageClassName"]: item for item in items}

    wait_until(lambda: {"azekura", "small", "far"} <= room().keys(), WITHIN_S, "what is told of room")
    assert all(item["nodeTopology"]["matchLabels"] == PLACE for item in room().values())
    assert room()["far"]["capacity"] == "0" != room()["azekura"]["capacity"]
    apply(claim("large", "100Ti"), pod("large", "large"))
    apply(claim("far", storageClassName="far"), pod("far", "far"))
    apply(claim("fits"), pod("fits", "fits"))
    ready("pod", "fits")
    for name in ("large", "far"):
        assert "did not have enough free storage" in why_it_waits(name)
        assert get("pvc", name)["status"]["phase"] == "Pending"
    names = ("large", "far", "fits")
    delete(*(f"pod/{name}" for name in names))
    delete("storageclass/far", *(f"pvc/{name}" for name in names))


def test_volumes_are_snapshot_together():
    group = {"labels": {"group": "both"}}
    for name in ("left", "right"):
        wanted = claim(name)
        wanted["metadata"] |= group
        apply(wanted, pod(name, name, f"echo {name} > /data/file; sync; sleep 1000000"))
    for name in ("left", "right"):
        ready("pod", name)
        wait_until(lambda name=name: name in in_pod(name, "cat /data/file"), 10, "the file")
    kind = {"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot", "metadata": {"name": "g"}}
    selected = {"selector": {"matchLabels": group["labels"]}}
    apply({**kind, "spec": {"volumeGroupSnapshotClassName": "azekura", "source": selected}})
    ready("volumegroupsnapshot", "g", "jsonpath={.status.readyToUse}=true")
    for name in ("left", "right"):
        in_pod(name, "echo later > /data/file; sync")

    def members():
        """By the claims that they are of."""
        items = json.loads(kubectl("get", "volumesnapshots", "-o", "json"))["items"]
        items = [item for item in items if item.get("status", {}).get("volumeGroupSnapshotName") == "g"]
        return {item["spec"]["source"].get("persistentVolumeClaimName"): item["metadata"]["name"] for item in items}

    wait_until(lambda: members().keys() == {"left", "right"}, WITHIN_S, "the members of the group")
    for name, snapshot in members().items():
        ready("volumesnapshot", snapshot, "jsonpath={.status.readyToUse}=true")
        source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot}
        apply(claim(f"{name}-then", dataSource=source), pod(f"{name}-then", f"{name}-then"))
    names = [f"{name}{when}" for name in ("left", "right") for when in ("", "-then")]
    for name in names:
        ready("pod", name)
        assert in_pod(name, "cat /data/file") == (name.removesuffix("-then") if "-then" in name else "later") + "\n"
    delete(*(f"pod/{name}" for name in names))
    delete("volumegroupsnapshot/g")
    delete(*(f"pvc/{name}" for name in names))


def nodes_are_up():
    rolled_out("daemonset", "azekura-node")


def test_a_folder_on_which_nothing_is_mounted_is_refused():
    install(
        "upgrade", node={**VALUES["node"], "storage": {**VALUES["node"]["storage"], "mounted": True}}, **TOLD_OF_ROOM
    )
    of_nodes = ["-l", "app.kubernetes.io/component=node", "-c", "mounted"]

    def refused():
        return "nothing is mounted at /var/lib/azekura" in kubectl("-n", NAMESPACE, "logs", *of_nodes, check=False)

    wait_until(refused, WITHIN_S, "the refusal")
    install("upgrade", **TOLD_OF_ROOM)
    nodes_are_up()
    assert in_pod("writer", "cat /data/file") == "later\n"


def test_what_is_uninstalled_leaves_its_data():
    before = {volume["name"] for volume in json.loads(azekura("volume", "list", "--json"))}
    delete("pod/writer", "pod/restored", "pod/clone")
    wait_until(lambda: kubectl("get", "volumeattachment", "-o", "name") == "", WITHIN_S, "the attachments' end")
    run("helm", "uninstall", "azekura", "--namespace", NAMESPACE, "--wait")
    capacities = "-n", NAMESPACE, "get", "csistoragecapacities", "-o", "name"
    wait_until(lambda: kubectl(*capacities) == "", WITHIN_S, "the end of what was told of room")
    install(**TOLD_OF_ROOM)
    nodes_are_up()
    assert {volume["name"] for volume in json.loads(azekura("volume", "list", "--json"))} == before
    apply(pod("again", "one"))
    ready("pod", "again")
    assert in_pod("again", "cat /data/file") == "later\n"


def test_what_is_deleted_is_gone():
    delete("pod/again")
    delete("volumesnapshot/s", "pvc/one", "pvc/restored", "pvc/clone")
    wait_until(lambda: not re.search("pvc-", kubectl("get", "pv", "-o", "name")), WITHIN_S, "the volumes' end")
    assert json.loads(azekura("volume", "list", "--json")) == []
    assert kubectl("get", "volumeattachment", "-o", "name") == ""
