"""The chart on three machines (./dev kubernetes up --machines 3, then test): machines die, are cut off and come again,
under pods that write.

The tests are one story, in this order. Each leaves all machines well.
"""

import json
import re
import time

import pytest

from tools.harness.process import wait_until
from tools.kubernetes import faults
from tools.kubernetes.client import (
    NAMESPACE,
    WITHIN_S,
    apply,
    azekura,
    claim,
    delete,
    get,
    helm,
    in_pod,
    kubectl,
    listed,
    pod,
    ready,
    rolled_out,
    run,
)
from tools.kubernetes.place import machines

FIRST, SECOND, THIRD = machines()[:3]
# Kubernetes takes 50 s to notice that a machine is away, and a copy that was away has to catch up.
AWAY_WITHIN_S = 300
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
VALUES = {
    "etcd": {"machines": [each.name for each in machines()[:3]]},
    "node": {"storage": {"deviceSize": "4GiB"}, "siteFromZone": True},
    # The kernels that this runs on have no NVMe/TCP and no NBD.
    "csi": {"attach": "fuse"},
    "snapshots": {"groups": True},
    "storageClasses": [
        {"name": "azekura", "parameters": {"copies": "2", "csi.storage.k8s.io/fstype": "xfs"}},
        # For tools/kubernetes/driver-small.yaml.
        {"name": "small", "parameters": {"copies": "2", "csi.storage.k8s.io/fstype": "ext4"}},
        # For tools/kubernetes/driver-immediate.yaml.
        {"name": "immediate", "volumeBindingMode": "Immediate", "parameters": {"copies": "2"}},
    ],
    "volumeAttributesClasses": [{"name": "bronze", "parameters": {"iops": "500", "bandwidth": "20MiB"}}],
}
# Writes a number a time, each durable before the next, and says in its log which was written and how long the longest
# took until then, in hundredths of a second.
WRITER = r"""
n=$(cat /data/number 2>/dev/null || echo 0)
longest=0
now() { read -r up _ < /proc/uptime; echo "${up%.*}${up#*.}"; }
while true; do
    n=$((n + 1))
    began=$(now)
    echo $n | dd of=/data/number conv=notrunc,fsync 2>/dev/null || { echo "failed at $n"; sleep 1000000; }
    took=$(($(now) - began))
    [ $took -le $longest ] || longest=$took
    echo "$n $longest"
    sleep 0.05
done
"""


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_there():
    if "azekura" in run("helm", "list", "-A", "-q"):
        pytest.exit("the chart is installed already: ./dev kubernetes down, then up and test", returncode=2)


def on(machine):
    """A pod's wish to be there. The scheduler still decides: `nodeName` would leave topology out."""
    return {"nodeSelector": {"kubernetes.io/hostname": machine.name}}


def status():
    """As a node says it whose machine is well."""
    pods = listed("pods", "-l", "app.kubernetes.io/component=node", namespace=NAMESPACE)
    for each in pods:
        if all(condition["status"] == "True" for condition in each["status"].get("conditions", [])):
            name = each["metadata"]["name"]
            told = kubectl("-n", NAMESPACE, "exec", name, "--", "azekura", "status", "--json", check=False)
            if told:
                return json.loads(told)
    return {}


def healthy():
    return status().get("healthy") is True


def all_well():
    rolled_out("daemonset", "azekura-node", AWAY_WITHIN_S)
    wait_until(healthy, AWAY_WITHIN_S, "a healthy cluster")


def last_written(name):
    """The last number that the writer was told to be durable, and its longest wait, s."""
    said = kubectl("logs", "--tail=1", name).split()
    assert said and said[0].isdigit(), f"{name}: {said}"
    return int(said[0]), int(said[1]) / 100


def goes_on(name):
    before, _ = last_written(name)
    wait_until(lambda: last_written(name)[0] > before + 5, WITHIN_S, f"{name} writing on")


def writes(name, machine):
    apply(claim(name), pod(name, name, WRITER, **on(machine)))
    ready("pod", name)
    wait_until(lambda: kubectl("logs", name), WITHIN_S, "the first number")
    goes_on(name)


def deployed(name, claim_name, command, first):
    """One pod, which is made anew elsewhere when its machine is lost; where it would like to be at first."""
    made = pod(name, claim_name, command)
    wish = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [first.name]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": wish}]}
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": {**made["spec"], "affinity": affinity}}
    spec = {"replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": name}}}
    kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
    apply(claim(claim_name), {**kind, "spec": {**spec, "template": template}})


def pod_of(name, other_than=None):
    """The pod of the deployment that runs, once there is one."""

    def running():
        for each in listed("pods", "-l", f"app={name}"):
            ready_now = {"type": "Ready", "status": "True"}
            conditions = each["status"].get("conditions", [])
            if each["metadata"]["name"] != other_than and any(ready_now.items() <= one.items() for one in conditions):
                return each
        return None

    return wait_until(running, AWAY_WITHIN_S, f"a pod of {name}")


def not_ready(machine):
    conditions = get("node", machine.name)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] != "True" for each in conditions)


def given_up(machine, deployment, name):
    """The pod that the deployment gets elsewhere when Kubernetes misses its machine, and somebody gives that one up."""
    wait_until(lambda: not_ready(machine), AWAY_WITHIN_S, f"Kubernetes to miss {machine.name}")
    began = time.monotonic()
    kubectl("taint", "nodes", machine.name, OUT_OF_SERVICE)
    after = pod_of(deployment, other_than=name)
    print(f"\nits pod runs elsewhere {time.monotonic() - began:.1f} s after {machine.name} was given up")
    assert after["spec"]["nodeName"] != machine.name
    return after["metadata"]["name"]


def taken_back(machine):
    ready("node", machine.name, within_s=AWAY_WITHIN_S)
    kubectl("taint", "nodes", machine.name, OUT_OF_SERVICE + "-")
    all_well()


def test_three_machines_from_nothing():
    began = time.monotonic()
    helm("install", VALUES)
    writes("writer", FIRST)
    print(f"\nfrom helm install to a pod that writes, on three machines: {time.monotonic() - began:.1f} s")
    rolled_out("statefulset", "azekura-etcd")
    rolled_out("deployment", "azekura-csi-controller")
    all_well()
    nodes = {node["name"]: node for node in json.loads(azekura("node", "list", "--json"))}
    assert nodes.keys() == {each.name for each in machines()}
    assert {name: node["site"] for name, node in nodes.items()} == {each.name: each.zone for each in machines()}


def test_a_machine_dies_and_others_go_on():
    pauses = {}
    for machine in (SECOND, THIRD):
        faults.kill(machine)
        wait_until(lambda machine=machine: not_ready(machine), AWAY_WITHIN_S, f"Kubernetes to miss {machine.name}")
        goes_on("writer")
        faults.start(machine)
        ready("node", machine.name, within_s=AWAY_WITHIN_S)
        all_well()
        pauses[machine.name] = last_written("writer")[1]
    print(f"\nlongest write until then: {pauses}")


def test_a_pod_goes_elsewhere_when_its_machine_has_died():
    deployed("moved", "moved", WRITER, SECOND)
    before = pod_of("moved")
    assert before["spec"]["nodeName"] == SECOND.name
    name = before["metadata"]["name"]
    goes_on(name)
    durable, _ = last_written(name)
    faults.kill(SECOND)
    after = given_up(SECOND, "moved", name)
    goes_on(after)
    first = int(kubectl("logs", after).split(maxsplit=1)[0])
    assert first > durable, "the number that was durable is there"
    faults.start(SECOND)
    taken_back(SECOND)
    goes_on(after)
    delete("deployment/moved")
    delete("pvc/moved")


def test_a_machine_that_was_cut_off_writes_no_more():
    """Its pod runs on in there, and does not know that another has its volume."""
    deployed("fenced", "fenced", WRITER, THIRD)
    before = pod_of("fenced")
    assert before["spec"]["nodeName"] == THIRD.name
    name = before["metadata"]["name"]
    goes_on(name)
    faults.cut(THIRD)
    after = given_up(THIRD, "fenced", name)
    goes_on(after)
    in_pod(after, "echo mine > /data/owner; sync")
    faults.heal(THIRD)
    taken_back(THIRD)
    goes_on(after)
    # What the lost pod would have written lands in the same file and in the same journal.
    numbers = [int(line.split()[0]) for line in kubectl("logs", after).splitlines()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    delete("deployment/fenced")
    apply(pod("checker", "fenced", **on(SECOND)))
    ready("pod", "checker")
    assert in_pod("checker", "cat /data/owner") == "mine\n"
    assert int(in_pod("checker", "cat /data/number")) >= numbers[-1]
    delete("pod/checker", "pvc/fenced")


def device_pod(name, claim_name, machine):
    made = pod(name, claim_name, **on(machine))
    container = made["spec"]["containers"][0]
    del container["volumeMounts"]
    container["volumeDevices"] = [{"name": "v", "devicePath": "/dev/shared"}]
    return made


def test_two_machines_share_a_device():
    apply(claim("shared", accessModes=["ReadWriteMany"], volumeMode="Block"))
    apply(device_pod("left", "shared", SECOND), device_pod("right", "shared", THIRD))
    for name in ("left", "right"):
        ready("pod", name)
    for turn in range(20):
        writer, reader = ("left", "right") if turn % 2 else ("right", "left")
        place = f"seek={turn % 3}"
        written = (
            f"printf '%-4096s' 'turn {turn} of {writer}' | dd of=/dev/shared bs=4096 {place} oflag=direct conv=notrunc"
        )
        in_pod(writer, f"{written} 2>/dev/null")
        seen = in_pod(reader, f"dd if=/dev/shared bs=4096 count=1 skip={turn % 3} iflag=direct 2>/dev/null")
        assert seen.rstrip() == f"turn {turn} of {writer}"
    delete("pod/left", "pod/right", "pvc/shared")


def test_nodes_are_upgraded_one_at_a_time_under_pods_that_write():
    writes("beside", SECOND)
    writes("other", THIRD)
    away, done = set(), False
    helm("upgrade", {**VALUES, "log": {"level": "warn"}})
    end = time.monotonic() + AWAY_WITHIN_S
    while not done:
        state = get("daemonset", "azekura-node", NAMESPACE)["status"]
        away.add(state["desiredNumberScheduled"] - state.get("numberReady", 0))
        done = state.get("updatedNumberScheduled") == state["desiredNumberScheduled"] == state.get("numberAvailable")
        assert time.monotonic() < end, state
    assert away <= {0, 1}, "never more than one is away"
    for name in ("writer", "beside", "other"):
        goes_on(name)
    print(f"\nlongest write: { {name: last_written(name)[1] for name in ('writer', 'beside', 'other')} }")
    all_well()
    delete("pod/beside", "pod/other")
    delete("pvc/beside", "pvc/other")


def test_a_machine_is_drained_for_maintenance():
    deployed("drained", "drained", WRITER, THIRD)
    name = pod_of("drained")["metadata"]["name"]
    goes_on(name)
    durable, _ = last_written(name)
    kubectl("drain", THIRD.name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    after = pod_of("drained", other_than=name)
    assert after["spec"]["nodeName"] != THIRD.name
    assert int(kubectl("logs", after["metadata"]["name"]).split(maxsplit=1)[0]) > durable
    kubectl("uncordon", THIRD.name)
    all_well()
    delete("deployment/drained")
    delete("pvc/drained")


def test_a_volume_is_at_home_where_its_pod_is():
    azekura("class", "create", "home", "--copies", "2", "--home", "attached")
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "home"}}
    parameters = {"class": "home", "csi.storage.k8s.io/fstype": "xfs"}
    binding = {"volumeBindingMode": "WaitForFirstConsumer", "parameters": parameters}
    apply({**kind, "provisioner": "csi.azekura.io", **binding})
    apply(claim("home", storageClassName="home"), pod("home", "home", **on(SECOND)))
    ready("pod", "home")
    volume = get("pv", get("pvc", "home")["spec"]["volumeName"])["spec"]["csi"]["volumeHandle"]

    def at_home():
        home = json.loads(azekura("volume", "show", volume, "--json")).get("home") or {}
        return home.get("host") == SECOND.name and home

    print(f"\nits home: {wait_until(at_home, WITHIN_S, 'the home')}")
    delete("pod/home", "pvc/home", "storageclass/home")


def test_what_is_deleted_is_gone():
    delete("pod/writer", "pvc/writer")
    wait_until(lambda: not re.search("pvc-", kubectl("get", "pv", "-o", "name")), WITHIN_S, "the volumes' end")
    assert json.loads(azekura("volume", "list", "--json")) == []
    assert kubectl("get", "volumeattachment", "-o", "name") == ""
    for machine in machines():
        assert faults.loops(machine) == []
