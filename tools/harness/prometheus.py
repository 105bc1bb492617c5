"""Debian's Prometheus, on the loopback and in a folder of its own, and what it is asked."""

import json
import urllib.parse
import urllib.request

from .process import Process, free_port, wait_until

HOST = "127.0.0.1"
# Of Go's runtime: the collector works harder, instead of the process growing.
MEMORY_MAX = "256MiB"
ANSWER_WITHIN_S = 20


class Prometheus:
    """Scrapes nodes every second, and evaluates a file of rules as often."""

    def __init__(self, folder, targets, rules):
        folder.mkdir()
        self.port = free_port()
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "azekura-api", "static_configs": [{"targets": targets}]}],
        }
        # All of JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        words = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        words += [f"--web.listen-address={HOST}:{self.port}", "--storage.tsdb.retention.size=64MB"]
        words += ["--query.max-samples=1000000", "--query.max-concurrency=2", "--log.level=warn"]
        self.process = Process(words, folder / "log", {"GOMEMLIMIT": MEMORY_MAX, "GOMAXPROCS": "1"})
        wait_until(self._ready, ANSWER_WITHIN_S, "Prometheus")

    def _ready(self):
        assert self.process.alive, self.process.log_tail()
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}/-/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def query(self, expression):
        """The series that an expression gives now: their labels, and their value."""
        words = urllib.parse.urlencode({"query": expression}).encode()
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/api/v1/query", words, ANSWER_WITHIN_S) as answer:
            data = json.load(answer)["data"]
        assert data["resultType"] == "vector", expression
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def firing(self):
        """The alerts that fire, with their labels."""
        return [labels for labels, _ in self.query('ALERTS{alertstate="firing"}')]

    def kill(self):
        self.process.kill()


def queries(dashboard):
    """The expressions of a dashboard's panels, with their titles, for all volumes, nodes and devices."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "15s")
            for variable in ("$volume", "$node", "$device"):
                expression = expression.replace(variable, ".*")
            assert "$" not in expression, f"{panel['title']}: a variable that is not known: {expression}"
            yield panel["title"], expression
