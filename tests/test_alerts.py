"""The alert rules and dashboards, without a cluster: Prometheus' own tool checks them, and each alert has its page."""

import json
import re
import subprocess

import pytest
import yaml

from tools.harness.cluster import ROOT
from tools.harness.prometheus import queries

MONITORING = ROOT / "charts" / "azekura" / "monitoring"
RULES = MONITORING / "azekura.rules.yaml"
DASHBOARDS = sorted(MONITORING.glob("*.json"))
ALARMS = ROOT / "docs" / "operations" / "alarms.md"

# As the chart names the job of a release that is called `storage`.
NODE = {"instance": "n1:7180", "job": "storage-azekura-api"}
DEVICE = {**NODE, "device": "7"}
VOLUME = {**NODE, "volume": "v"}
DAY = 86_400

# For each alert: series by minutes that make it fire, when it is looked at, and the labels that it then has; and the
# same series with values at which it does not.
CASES = {
    "AzekuraNodeAway": [
        ("azekura_node_alive", {**NODE, "peer": "n3"}, "0x10", "1x10"),
        "5m",
        {"peer": "n3"},
    ],
    "AzekuraNodeNotScraped": [("up", NODE, "0x10", "1x10"), "8m", NODE],
    "AzekuraConfigurationUnreachable": [("azekura_configuration_reachable", NODE, "0x10", "1x10"), "5m", NODE],
    "AzekuraGroupsWithoutPrimary": [("azekura_cluster_groups_without_primary", NODE, "2x10", "0x10"), "5m", {}],
    "AzekuraGroupsNotServing": [
        ("azekura_primary_groups", {**NODE, "health": "read_only"}, "1x10", "0x10"),
        "5m",
        {"health": "read_only"},
    ],
    "AzekuraCopiesMissing": [("azekura_cluster_copies_missing", NODE, "4x30", "4x5 0x25"), "20m", {}],
    "AzekuraDeviceClosed": [("azekura_device_open", DEVICE, "0x10", "1x10"), "5m", DEVICE],
    "AzekuraDeviceHangs": [("azekura_device_hangs", DEVICE, "1x10", "0x10"), "5m", DEVICE],
    "AzekuraDeviceErrors": [
        ("azekura_device_errors_total", {**DEVICE, "operation": "read"}, "0x5 1x20", "3x25"),
        "10m",
        {**DEVICE, "operation": "read"},
    ],
    "AzekuraDeviceSlow": [
        ("azekura_device_latency_seconds_bucket", {**DEVICE, "le": "0.524288"}, "0x60", "0+60x60"),
        ("azekura_device_latency_seconds_bucket", {**DEVICE, "le": "1.048576"}, "0x60", "0+60x60"),
        ("azekura_device_latency_seconds_bucket", {**DEVICE, "le": "+Inf"}, "0+60x60", "0+60x60"),
        "50m",
        {"instance": "n1:7180", "device": "7"},
    ],
    "AzekuraDeviceFull": [("azekura_device_full", DEVICE, "1x10", "0x10"), "5m", DEVICE],
    "AzekuraDeviceNearlyFull": [
        ("azekura_device_live_bytes", DEVICE, "86x20", "84x20"),
        ("azekura_device_capacity_bytes", DEVICE, "100x20", "100x20"),
        "15m",
        DEVICE,
    ],
    # From 60 on, by 0.02 a minute: in four days 115 more. Its counterpart has as much room in use, and stays there.
    "AzekuraDeviceFullSoon": [
        ("azekura_device_live_bytes", DEVICE, "60+0.02x500", "60x500"),
        ("azekura_device_capacity_bytes", DEVICE, "100x500", "100x500"),
        "480m",
        DEVICE,
    ],
    "AzekuraProtectionLate": [
        ("azekura_volume_protection_lag_seconds", VOLUME, "1600x20", "1400x20"),
        ("azekura_volume_protection_interval_seconds", VOLUME, "600x20", "600x20"),
        "15m",
        VOLUME,
    ],
    "AzekuraScrubFindings": [("azekura_scrub_findings", NODE, "1x10", "0x10"), "5m", NODE],
    # Promtool's time begins in 1970.
    "AzekuraScrubOverdue": [
        ("azekura_scrub_oldest_timestamp_seconds", {**NODE, "kind": "deep"}, "60x200", f"{5 * DAY}x200"),
        f"{32 * 24}h",
        {**NODE, "kind": "deep"},
    ],
    "AzekuraChecksumErrors": [("azekura_device_checksum_errors_total", DEVICE, "0x5 2x20", "2x25"), "10m", DEVICE],
    "AzekuraVolumeErrors": [
        ("azekura_volume_errors_total", {**VOLUME, "operation": "write"}, "0x5 1x20", "1x25"),
        "8m",
        {"volume": "v"},
    ],
    "AzekuraVolumeThrottled": [
        ("azekura_volume_throttled_seconds_total", VOLUME, "0+57x90", "0+30x90"),
        "60m",
        {"instance": "n1:7180", "volume": "v"},
    ],
    "AzekuraKeysMissing": [("azekura_keys_missing", NODE, "1x10", "0x10"), "5m", NODE],
}


def rules():
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def promtool(*words):
    done = subprocess.run(["promtool", *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def series(name, labels):
    return name + "{" + ", ".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def expected(rule, labels):
    """What Prometheus makes of the rule for these labels."""

    def filled(text):
        return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)

    annotations = {name: filled(text) for name, text in rule["annotations"].items()}
    return {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": annotations}


def test_prometheus_takes_the_rules():
    code, said = promtool("check", "rules", str(RULES))
    assert code == 0 and f"{len(rules())} rules found" in said, said


def test_each_alert_fires_when_it_should_and_not_else(tmp_path):
    assert CASES.keys() == rules().keys()
    # Those that look at hours, and at minutes: a file of tests has one step for all.
    tests = {"1m": [], "6h": []}
    for name, (*inputs, when, labels) in CASES.items():
        for column, alerts in [(2, [expected(rules()[name], labels)]), (3, [])]:
            input_series = [{"series": series(each[0], each[1]), "values": each[column]} for each in inputs]
            asked = [{"eval_time": when, "alertname": name, "exp_alerts": alerts}]
            step = "6h" if when.endswith("h") else "1m"
            tests[step].append({"interval": step, "input_series": input_series, "alert_rule_test": asked})
    for step, cases in tests.items():
        file = tmp_path / f"{step}.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": step, "tests": cases}))
        code, said = promtool("test", "rules", str(file))
        assert code == 0, said


def test_each_alert_has_its_page_and_each_page_its_alert():
    assert re.findall(r"^## (\w+)$", ALARMS.read_text(), re.MULTILINE) == list(rules())


def known_metrics():
    listed = re.findall(r"^\| `(azekura_\w+)` \| (\w+)", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    for name, kind in listed:
        yield from (name + end for end in (["_bucket", "_sum", "_count"] if kind == "histogram" else [""]))


def test_rules_ask_for_metrics_that_are_served():
    known = {*known_metrics()}
    for name, rule in rules().items():
        asked = set(re.findall(r"azekura_\w+", rule["expr"]))
        assert asked <= known, name


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_queries_of_dashboards_can_be_read_and_ask_for_what_is_served(file, tmp_path):
    dashboard = json.loads(file.read_text())
    assert len(DASHBOARDS) == 4 and dashboard["uid"] == f"azekura-{file.stem}"
    asked = list(queries(dashboard))
    recorded = [{"record": f"query:{number}", "expr": expression} for number, (_, expression) in enumerate(asked)]
    rule_file = tmp_path / "queries.yaml"
    rule_file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    code, said = promtool("check", "rules", str(rule_file))
    assert code == 0 and f"{len(asked)} rules found" in said, said
    known = {*known_metrics()}
    for title, expression in asked:
        assert set(re.findall(r"azekura_\w+", expression)) <= known, title
