"""OpenBao as a server of keys: the real one, with TLS and policies. It keeps all in memory: once stopped it is gone."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from tools.harness.cluster import HOST
from tools.harness.process import Process, free_port, wait_until

ROOT = Path(__file__).parents[2]
BAO = ROOT / "target" / "tools" / "bin" / "bao"
# What a node needs, and nothing more.
POLICY = """
path "transit/encrypt/azekura" { capabilities = ["update"] }
path "transit/decrypt/azekura" { capabilities = ["update"] }
path "transit/keys/azekura" { capabilities = ["read"] }
"""


class Vault:
    """The server, started, initialised and unsealed, with a transit key `azekura`."""

    def __init__(self, folder, authority):
        folder.mkdir()
        self.folder = folder
        self.authority = authority
        self.port = free_port()
        self.url = f"https://{HOST}:{self.port}"
        certificate, key = authority.sign("vault", "serverAuth")
        self.configuration = folder / "bao.json"
        listener = {"address": f"{HOST}:{self.port}", "cluster_address": f"{HOST}:{free_port()}"}
        listener |= {"tls_cert_file": str(certificate), "tls_key_file": str(key)}
        self.configuration.write_text(json.dumps({"storage": {"inmem": {}}, "listener": {"tcp": listener}}))
        self.process = self.root = None
        self.start()
        initialised = self.ask("PUT", "sys/init", {"secret_shares": 1, "secret_threshold": 1})
        self.root, self.unseal_key = initialised["root_token"], initialised["keys_base64"][0]
        self.unseal()
        self.ask("POST", "sys/mounts/transit", {"type": "transit"})
        self.ask("POST", "transit/keys/azekura", {})
        self.ask("POST", "sys/policies/acl/node", {"policy": POLICY})
        self.token = self.new_token("node")

    def start(self):
        self.process = Process([BAO, "server", f"-config={self.configuration}"], self.folder / "bao.log")
        wait_until(self.answers, 60, "OpenBao")

    def unseal(self):
        self.ask("PUT", "sys/unseal", {"key": self.unseal_key})
        # Its engines are ready a moment later.
        wait_until(lambda: self.status("sys/mounts") == 200, 60, "OpenBao's engines")

    def answers(self):
        assert self.process.alive, self.process.log_tail()
        try:
            return self.status("sys/seal-status") == 200
        except OSError:
            return False

    def request(self, method, path, body=None):
        context = ssl.create_default_context(cafile=self.authority.certificate)
        headers = {"X-Vault-Token": self.root} if self.root else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/v1/{path}", data, headers, method=method)
        return urllib.request.urlopen(request, timeout=30, context=context)

    def status(self, path):
        try:
            return self.request("GET", path).status
        except urllib.error.HTTPError as error:
            return error.code

    def ask(self, method, path, body=None):
        with self.request(method, path, body) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def new_token(self, *policies):
        made = self.ask("POST", "auth/token/create", {"policies": list(policies), "no_default_policy": True})
        return made["auth"]["client_token"]

    def rotate(self):
        self.ask("POST", "transit/keys/azekura/rotate")

    def seal(self):
        self.ask("PUT", "sys/seal")
