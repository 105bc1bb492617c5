"""The chart: what it renders with several values, what Kubernetes' schemas say of that, and which values it refuses.

That what is rendered works is for tests/kubernetes_chart.py.
"""

import base64
import json
import subprocess

import pytest
import yaml

from tools.harness.cluster import ROOT, binary

CHART = ROOT / "charts" / "azekura"
HELM = ROOT / "target" / "tools" / "go" / "helm"
VALIDATE = ROOT / "target" / "tools" / "bin" / "kubernetes-validate"

there = HELM.exists() and VALIDATE.exists()
pytestmark = pytest.mark.skipif(not there, reason="there is no helm, or no kubernetes-validate: ./dev test has them")

LAB = {"etcd": {"machines": ["m1"]}}
KIND = "csi.storage.k8s.io"
SECRET = {
    f"{KIND}/{kind}-secret-{what}": value
    for kind in ("provisioner", "node-stage", "node-publish")
    for what, value in (("name", "volumes"), ("namespace", "other"))
}
# Every switch thrown, in some set.
SETS = {
    "lab": LAB,
    "three": {"etcd": {"machines": ["m1", "m2", "m3"]}},
    "own-etcd": {"etcd": {"servers": ["http://10.0.0.1:2379", "http://10.0.0.2:2379"]}},
    "tls-etcd": {"etcd": {"servers": ["https://10.0.0.1:2379"], "secret": "etcd-client"}},
    "user-etcd": {"etcd": {"servers": ["https://10.0.0.1:2379"], "secret": "etcd-client", "user": "azekura"}},
    "all": {
        **LAB,
        "image": {"prefix": "registry.example/x", "tag": "7", "pullSecrets": ["credentials"]},
        "node": {
            "hostNetwork": True,
            "site": "s",
            "keySecret": "kek",
            "extraArgs": ["--scrub-days=3"],
            "storage": {"mounted": True, "deviceSize": "1TiB", "devices": 4},
            "tolerations": [{"operator": "Exists"}],
        },
        "csi": {
            "attach": "nvme",
            "controller": {"tokenSecret": "token"},
            "orphans": {"schedule": "@daily"},
        },
        "snapshots": {"groups": True},
        "volumeAttributesClasses": [{"name": "bronze", "parameters": {"iops": "1000"}}],
        "networkPolicy": {"apiFrom": [{"namespaceSelector": {}}]},
        "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "backups": {
        **LAB,
        "csi": {
            "snapshotMetadata": {"enabled": True, "tlsSecret": "tls", "caCert": "-----BEGIN CERTIFICATE-----\nx\n"},
            "orphans": {"schedule": "0 4 * * *", "olderThan": "2d", "project": "accounts"},
        },
    },
    "disks": {
        **LAB,
        "node": {"siteFromZone": True, "storage": {"disks": ["/dev/disk/by-id/nvme-A*", "/dev/disk/by-id/wwn-0x5"]}},
    },
    "secret": {
        **LAB,
        "storageClasses": [
            {"name": "secret", "parameters": {**SECRET, "encrypt": "secret"}},
            {"name": "each", "parameters": {"encrypt": "secret", f"{KIND}/provisioner-secret-name": "${pvc.name}"}},
            {"name": "large", "parameters": {"logicalBlockSize": "4096"}},
        ],
    },
    "room": {**LAB, "csi": {"storageCapacity": True}},
    "little": {
        **LAB,
        "snapshots": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "storageClasses": [],
        "csi": {"attach": "fuse"},
    },
}


def helm(*words, values=None):
    more = [] if values is None else ["--values", "-"]
    # helm that go has built takes itself for one of long ago.
    more += ["--kube-version", "1.35.0"]
    text = json.dumps(values) if values is not None else None
    return subprocess.run([HELM, *words, *more], input=text, capture_output=True, text=True)


def render(values, name="azekura"):
    done = helm("template", name, CHART, "--namespace", "ns", values=values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def refusal(values):
    done = helm("template", "azekura", CHART, values=values)
    assert done.returncode != 0, "it was rendered"
    return done.stderr


def one(objects, kind, name):
    [found] = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pod_of(objects, kind, name):
    spec = one(objects, kind, name)["spec"]
    return spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]


def arguments(pod, container):
    [found] = [each for each in pod["containers"] if each["name"] == container]
    return [*found.get("command", []), *found.get("args", [])]


@pytest.mark.parametrize("name", SETS)
def test_what_is_rendered_keeps_to_kubernetes_schemas(name, tmp_path):
    linted = helm("lint", "--strict", CHART, values=SETS[name])
    assert linted.returncode == 0, linted.stdout + linted.stderr
    objects = render(SETS[name])
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    checked = subprocess.run([VALIDATE, "--strict", "--no-warn", file], capture_output=True, text=True)
    said = checked.stdout + checked.stderr
    assert checked.returncode == 0, said
    # Those of Kubernetes itself; the others' CRDs are not in it.
    known = [
        each
        for each in objects
        if not any(word in each["apiVersion"] for word in ("monitoring", "snapshot", "cbt.storage"))
    ]
    assert said.count("passed for resource") == len(known), said


def test_a_machines_zone_can_be_its_site():
    def site(values):
        container = pod_of(render(values), "DaemonSet", "azekura-node")["containers"][0]
        zone = [entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"] if entry["name"] == "ZONE"]
        return [word for word in container["args"] if word.startswith("--site")], zone

    assert site(SETS["disks"]) == (["--site=$(ZONE)"], ["metadata.labels['topology.kubernetes.io/zone']"])
    assert site(SETS["all"]) == (["--site=s"], [])
    assert site(LAB) == ([], [])


def test_the_check_of_schemas_can_fail(tmp_path):
    objects = render(LAB)
    pod_of(objects, "DaemonSet", "azekura-node")["containers"][0]["ports"][0]["slip"] = 1
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    checked = subprocess.run([VALIDATE, "--strict", "--no-warn", file], capture_output=True, text=True)
    assert checked.returncode != 0 and "slip" in checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "etcd.machines"),
        ({"etcd": {"machines": ["a"], "servers": ["http://h:1"]}}, "give one of them"),
        ({"etcd": {"machines": ["a", "b"]}}, "one, three or five"),
        ({"etcd": {"servers": ["https://h:2379"]}}, "etcd.secret"),
        ({"etcd": {"servers": ["http://h:2379"], "secret": "s"}}, "etcd.secret"),
        ({**LAB, "etcd": {"machines": ["m1"], "user": "u"}}, "etcd.user"),
        ({"etcd": {"servers": ["ftp://h:2379"]}}, "servers"),
        ({**LAB, "csi": {"attach": "nvme"}}, "node.hostNetwork"),
        ({**LAB, "csi": {"attach": "iscsi"}}, "attach"),
        ({**LAB, "csi": {"snapshotMetadata": {"enabled": True}}}, "tlsSecret"),
        ({**LAB, "csi": {"orphans": {"schedule": "daily"}}}, "schedule"),
        ({**LAB, "csi": {"storageCapacity": True, "controller": {"tokenSecret": "t"}}}, "csi.storageCapacity"),
        ({**LAB, "csi": {"attach": "nbd"}}, "attach"),
        ({**LAB, "node": {"storage": {"deviceSize": "100G"}}}, "deviceSize"),
        ({**LAB, "node": {"storage": {"devicePath": "/dev/sdb"}}}, "devicePath"),
        ({**LAB, "node": {"storage": {"disks": ["sdb"]}}}, "disks"),
        ({**LAB, "nodes": {}}, "nodes"),
        ({**LAB, "log": {"format": "xml"}}, "log"),
        ({**LAB, "log": {"level": "all"}}, "log"),
        ({**LAB, "storageClasses": [{"name": "x", "parameters": {"replicas": "3"}}]}, "replicas"),
        ({**LAB, "storageClasses": [{"name": "x", "parameters": {"copies": 3}}]}, "copies"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(values, said):
    assert said in refusal(values)


@pytest.mark.parametrize("name", SETS)
def test_the_program_takes_what_the_chart_tells_it(name):
    objects = render(SETS[name])
    places = [("DaemonSet", "azekura-node", "node"), ("DaemonSet", "azekura-csi-node", "driver")]
    places.append(("Deployment", "azekura-csi-controller", "driver"))
    places += [("CronJob", "azekura-csi-orphans", "orphans")] if name in ("all", "backups") else []
    for kind, owner, container in places:
        words = arguments(pod_of(objects, kind, owner), container)
        named = [word.replace("$(ADDRESS)", "127.0.0.1").replace("$(NODE_NAME)", "m1") for word in words]
        # With --help behind it nothing is started; an option that is not known is refused all the same.
        known = subprocess.run([binary(), *named, "--help"], capture_output=True, text=True)
        assert known.returncode == 0, known.stderr
        options = {word.split("=")[0] for word in named if word.startswith("--")}
        assert all(option in known.stdout for option in options), options


def test_the_form_of_the_log_is_told_to_all_parts():
    places = [("DaemonSet", "azekura-node", "node"), ("DaemonSet", "azekura-csi-node", "driver")]
    places.append(("Deployment", "azekura-csi-controller", "driver"))
    for log in ({"format": "text", "level": "info"}, {"format": "json", "level": "debug"}):
        objects = render({**LAB, "log": log} if log["format"] == "json" else LAB)
        for kind, owner, container in places:
            pod = pod_of(objects, kind, owner)
            assert f"--log={log['format']}" in arguments(pod, container)
            [found] = [each for each in pod["containers"] if each["name"] == container]
            assert {"name": "AZEKURA_LOG", "value": log["level"]} in found["env"]


def test_disks_take_the_place_of_files():
    pod = pod_of(render(SETS["disks"]), "DaemonSet", "azekura-node")
    words = arguments(pod, "node")
    assert [word for word in words if word.startswith("--d")] == [
        "--data=/var/lib/azekura",
        "--disk=/dev/disk/by-id/nvme-A*",
        "--disk=/dev/disk/by-id/wwn-0x5",
    ]
    assert {"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}} in pod["volumes"]
    assert {"name": "dev", "mountPath": "/dev"} in pod["containers"][0]["volumeMounts"]
    assert "dev" not in [each["name"] for each in pod_of(render(LAB), "DaemonSet", "azekura-node")["volumes"]]


def test_a_node_is_ready_when_it_says_so_and_is_never_ended_for_being_slow():
    pod = pod_of(render(LAB), "DaemonSet", "azekura-node")
    [node] = [each for each in pod["containers"] if each["name"] == "node"]
    assert node["readinessProbe"]["httpGet"] == {"path": "/v1/ready", "port": "api", "scheme": "HTTPS"}
    assert "livenessProbe" not in node


def test_nodes_find_the_configuration():
    def config(values):
        words = arguments(pod_of(render(values), "DaemonSet", "azekura-node"), "node")
        return next(word for word in words if word.startswith("--config="))

    member = "http://azekura-etcd-{}.azekura-etcd.ns.svc.cluster.local:2379"
    assert config(SETS["three"]) == "--config=" + ",".join(member.format(number) for number in range(3))
    words = arguments(pod_of(render(SETS["tls-etcd"]), "DaemonSet", "azekura-node"), "node")
    assert {"--config-ca=/etcd/ca.crt", "--config-cert=/etcd/tls.crt", "--config-key=/etcd/tls.key"} <= set(words)
    words = arguments(pod_of(render(SETS["user-etcd"]), "DaemonSet", "azekura-node"), "node")
    assert "--config-user=azekura" in words and not any("tls.key" in word for word in words)
    assert config(SETS["own-etcd"]) == "--config=http://10.0.0.1:2379,http://10.0.0.2:2379"
    objects = render(SETS["three"])
    bound = [each for each in objects if each["kind"] == "PersistentVolume"]
    terms = [each["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] for each in bound]
    assert [term[0]["matchExpressions"][0]["values"] for term in terms] == [["m1"], ["m2"], ["m3"]]
    assert one(objects, "PodDisruptionBudget", "azekura-etcd")["spec"]["maxUnavailable"] == 1


def test_monitoring_has_the_rules_and_the_dashboards_as_they_are():
    monitoring = CHART / "monitoring"
    objects = render(SETS["all"])
    assert one(objects, "PrometheusRule", "azekura")["spec"] == yaml.safe_load(
        (monitoring / "azekura.rules.yaml").read_text()
    )
    dashboards = one(objects, "ConfigMap", "azekura-dashboards")
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    shown = {name: json.loads(text) for name, text in dashboards["data"].items()}
    assert shown == {f"azekura-{file.name}": json.loads(file.read_text()) for file in monitoring.glob("*.json")}
    without = render({**LAB, "monitoring": {"enabled": True, "dashboards": False}})
    assert not [each for each in without if each["kind"] == "ConfigMap" and "dashboards" in each["metadata"]["name"]]


@pytest.mark.parametrize("name", SETS)
def test_rights_are_the_least(name):
    objects = render(SETS[name])
    for each in objects:
        if each["kind"] in ("DaemonSet", "StatefulSet", "Deployment", "CronJob"):
            pod = pod_of(objects, each["kind"], each["metadata"]["name"])
            asks = any(word in each["metadata"]["name"] for word in ("csi-controller", "csi-orphans"))
            assert pod.get("automountServiceAccountToken", True) == asks, each["metadata"]["name"]
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                own = container["securityContext"]
                privileged = [("azekura-csi-node", "driver")]
                # A machine's disks are open to privileged containers alone.
                privileged += [("azekura-node", "node")] if name == "disks" else []
                if (each["metadata"]["name"], container["name"]) in privileged:
                    # Kubernetes refuses a privileged container that may not gain privileges.
                    assert own["privileged"] and own.get("allowPrivilegeEscalation") is not False
                else:
                    assert own["capabilities"]["drop"] == ["ALL"] and own["readOnlyRootFilesystem"], container
                    assert own["allowPrivilegeEscalation"] is False
    rules = [rule for each in objects if each["kind"] in ("ClusterRole", "Role") for rule in each["rules"]]
    assert not any("*" in rule["resources"] + rule["verbs"] for rule in rules)
    secrets = [rule for rule in rules if "secrets" in rule["resources"]]
    assert bool(secrets) == (name == "secret"), secrets
    assert all(rule["verbs"] == ["get"] and rule["resourceNames"] for rule in secrets), secrets
    groups = {rule["apiGroups"][0] for rule in rules}
    assert ("snapshot.storage.k8s.io" in groups) == (name != "little")


def test_a_plugin_whose_end_would_end_volumes_is_not_replaced_by_itself():
    def strategy(attach, **more):
        values = {**LAB, "csi": {"attach": attach}, **more}
        return one(render(values), "DaemonSet", "azekura-csi-node")["spec"]["updateStrategy"]["type"]

    assert [strategy(way) for way in ("auto", "fuse")] == ["OnDelete", "OnDelete"]
    assert strategy("nvme", node={"hostNetwork": True}) == "RollingUpdate"


def test_strangers_do_not_reach_the_configuration():
    policy = one(render(LAB), "NetworkPolicy", "azekura-etcd")["spec"]
    labels = [rule["from"][0]["podSelector"]["matchLabels"] for rule in policy["ingress"]]
    assert [each["app.kubernetes.io/component"] for each in labels] == ["node", "etcd"]
    assert all(each["app.kubernetes.io/instance"] == "azekura" for each in labels)


def test_what_must_be_wanted_is_not_there_by_itself():
    kinds = {each["kind"] for each in render(LAB)}
    assert not kinds & {"ServiceMonitor", "PrometheusRule", "VolumeAttributesClass"}
    kinds = {each["kind"] for each in render(SETS["all"])}
    assert {"ServiceMonitor", "PrometheusRule", "VolumeAttributesClass"} <= kinds


def test_a_release_of_another_name_has_names_of_its_own():
    names = [each["metadata"]["name"] for each in render(LAB, "storage") if each["kind"] == "DaemonSet"]
    assert sorted(names) == ["storage-azekura-csi-node", "storage-azekura-node"]


def test_a_class_with_a_secret_has_that_and_no_other():
    objects = render(SETS["secret"])
    assert one(objects, "CSIDriver", "csi.azekura.io")["spec"]["requiresRepublish"] is True
    role, binding = (one(objects, kind, "azekura-csi-controller-secret") for kind in ("Role", "RoleBinding"))
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "other"
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["volumes"], "verbs": ["get"]}
    assert role["rules"] == [rule]
    assert binding["subjects"][0]["namespace"] == "ns"
    # Of a name that each claim fills in, whoever makes the Secrets says who reads them.
    others = [each for each in objects if "secrets" in json.dumps(each.get("rules", []))]
    assert others == [role]
    assert one(render(LAB), "CSIDriver", "csi.azekura.io")["spec"]["requiresRepublish"] is False
    forced = {**LAB, "csi": {"republish": True}}
    assert one(render(forced), "CSIDriver", "csi.azekura.io")["spec"]["requiresRepublish"] is True


def test_backup_programs_find_who_tells_of_changed_blocks():
    objects = render(SETS["backups"])
    told = one(objects, "SnapshotMetadataService", "csi.azekura.io")
    assert told["spec"]["address"] == "azekura-snapshot-metadata.ns.svc:6443"
    assert base64.b64decode(told["spec"]["caCert"]).startswith(b"-----BEGIN CERTIFICATE-----")
    pod = pod_of(objects, "Deployment", "azekura-csi-controller")
    words = arguments(pod, "snapshot-metadata")
    assert {"--csi-address=/csi/csi.sock", "--tls-cert=/tls/tls.crt", "--tls-key=/tls/tls.key"} <= set(words)
    assert {"name": "tls", "secret": {"secretName": "tls", "defaultMode": 0o400}} in pod["volumes"]
    # The Service's pods are those whose container has the port, and the policy lets others reach it alone.
    service = one(objects, "Service", "azekura-snapshot-metadata")["spec"]
    labels = one(objects, "Deployment", "azekura-csi-controller")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert service["ports"] == [{"name": "metadata", "port": 6443, "targetPort": "metadata"}]
    policy = one(objects, "NetworkPolicy", "azekura-snapshot-metadata")["spec"]
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": 50051}]]
    rules = one(objects, "ClusterRole", "azekura-csi-controller")["rules"]
    reviews = {resource for rule in rules for resource in rule["resources"] if "reviews" in resource}
    assert reviews == {"tokenreviews", "subjectaccessreviews"}
    kinds = {each["kind"] for each in render(LAB)}
    assert not kinds & {"SnapshotMetadataService", "CronJob"} and "reviews" not in json.dumps(render(LAB))


def test_what_looks_for_orphans_only_lists():
    objects = render(SETS["backups"])
    words = arguments(pod_of(objects, "CronJob", "azekura-csi-orphans"), "orphans")
    assert "--older-than=2d" in words and "--project=accounts" in words and "--delete" not in words
    rules = one(objects, "ClusterRole", "azekura-csi-orphans")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list"}
    account = pod_of(objects, "CronJob", "azekura-csi-orphans")["serviceAccountName"]
    assert one(objects, "ClusterRoleBinding", "azekura-csi-orphans")["subjects"][0]["name"] == account


def test_kubernetes_is_told_of_room_where_it_is_wanted():
    def told(values):
        objects = render(values)
        pod = pod_of(objects, "Deployment", "azekura-csi-controller")
        role = one(objects, "Role", "azekura-csi-controller")
        named = {entry["name"] for each in pod["containers"] for entry in each.get("env", [])}
        return (
            one(objects, "CSIDriver", "csi.azekura.io")["spec"]["storageCapacity"],
            [word for word in arguments(pod, "provisioner") if "capacity" in word],
            "POD_NAME" in named,
            {resource for rule in role["rules"] for resource in rule["resources"]},
        )

    words = ["--enable-capacity", "--capacity-ownerref-level=2"]
    assert told(SETS["room"]) == (True, words, True, {"leases", "csistoragecapacities", "pods", "replicasets"})
    assert told(LAB) == (False, [], False, {"leases"})


def test_snapshots_of_groups_come_with_a_class():
    def there(values):
        objects = render(values)
        words = arguments(pod_of(objects, "Deployment", "azekura-csi-controller"), "snapshotter")
        named = [each["metadata"]["name"] for each in objects if each["kind"] == "VolumeGroupSnapshotClass"]
        return named, [word.split("=")[-1] for word in words if "CSIVolumeGroupSnapshot" in word]

    assert there(SETS["all"]) == (["azekura"], ["true"])
    # The snapshotter looks for them unless it is told not to, and may not see them.
    assert there(LAB) == ([], ["false"])


def test_the_provisioner_may_mark_the_snapshot_that_it_reads():
    rules = one(render(LAB), "ClusterRole", "azekura-csi-controller")["rules"]
    [verbs] = [rule["verbs"] for rule in rules if rule["resources"] == ["volumesnapshots"]]
    assert verbs == ["get", "list", "watch", "update"]
