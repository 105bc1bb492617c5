"""A stand-in for the API of Kubernetes: lists in pages, groups, and whatever may be wrong with an answer."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CORE = "/api/v1"
STORAGE = "/apis/storage.k8s.io/v1"
SNAPSHOTS = "/apis/snapshot.storage.k8s.io"
GROUPS = "/apis/groupsnapshot.storage.k8s.io"


class KubernetesApi:
    """Serves `lists`, objects by path, one a page, over HTTPS if it has a certificate.

    `wrong` has answers, (status, body), for a path or a target. `shown` are the proofs that came.
    """

    def __init__(self, certificate=None, key=None, host="127.0.0.1"):
        self.lists = {
            f"{CORE}/persistentvolumes": [],
            f"{CORE}/persistentvolumeclaims": [],
            f"{STORAGE}/csinodes": [],
            f"{STORAGE}/volumeattachments": [],
            f"{SNAPSHOTS}/v1/volumesnapshotcontents": [],
        }
        self.wrong = {}
        self.asked = []
        self.shown = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                outer.shown.append(self.headers.get("Authorization"))
                status, body = outer.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self.server.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, target):
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        for wrong in (target, path):
            if wrong in self.wrong:
                return self.wrong[wrong]
        if path in self.lists:
            at = int(query.get("continue", ["0"])[0])
            more = {"continue": str(at + 1)} if at + 1 < len(self.lists[path]) else {}
            return 200, json.dumps({"kind": "List", "metadata": more, "items": self.lists[path][at : at + 1]}).encode()
        if any(known.startswith(f"{path}/v1/") for known in self.lists):
            return 200, json.dumps({"kind": "APIGroup", "preferredVersion": {"version": "v1"}}).encode()
        return 404, json.dumps({"kind": "Status", "message": "could not find the requested resource"}).encode()

    def add(self, path, **spec):
        """An object with this `spec`; its name and identity are given with that."""
        metadata = {key: spec.pop(key) for key in ("name", "uid") if key in spec}
        self.lists[path].append({"metadata": metadata, "spec": spec, "status": spec.pop("status", {})})

    def add_volume(self, handle, driver="csi.azekura.io"):
        """A PersistentVolume."""
        self.add(f"{CORE}/persistentvolumes", name=f"pv-of-{handle}", csi={"driver": driver, "volumeHandle": handle})

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
