"""Keys and certificates of the cluster's programs, for a month."""

import subprocess

from .place import ADDRESS, API_SERVICE, KEYS, machines

SERVED = ["IP:127.0.0.1", f"IP:{API_SERVICE}", f"IP:{ADDRESS}", "DNS:localhost", "DNS:kubernetes.default.svc"]
# name, user, group
CLIENTS = (
    ("admin", "admin", "system:masters"),
    ("controllers", "system:kube-controller-manager", None),
    ("scheduler", "system:kube-scheduler", None),
    ("to-kubelet", "api-server", "system:masters"),
)
CONFIG = """apiVersion: v1
kind: Config
current-context: it
clusters:
  - {{ name: it, cluster: {{ server: "https://{address}:443", certificate-authority: "{keys}/ca.crt" }} }}
users:
  - {{ name: it, user: {{ client-certificate: "{keys}/{name}.crt", client-key: "{keys}/{name}.key" }} }}
contexts:
  - {{ name: it, context: {{ cluster: it, user: it }} }}
"""


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=KEYS)


def certificate(name, subject, extensions):
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (KEYS / f"{name}.ext").write_text("\n".join(extensions))
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", f"{name}.ext"]
    openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signed)


def make():
    if (KEYS / "done").exists():
        return
    KEYS.mkdir(parents=True, exist_ok=True)
    KEYS.chmod(0o700)
    own = ["-subj", "/CN=kubernetes", "-days", "30", "-keyout", "ca.key", "-out", "ca.crt"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", *own)
    certificate("server", "/CN=kube-apiserver", [f"subjectAltName={','.join(SERVED)}", "extendedKeyUsage=serverAuth"])
    kubelets = tuple((f"kubelet-{each.name}", f"system:node:{each.name}", "system:nodes") for each in machines())
    for name, user, group in CLIENTS + kubelets:
        subject = (f"/O={group}" if group else "") + f"/CN={user}"
        certificate(name, subject, ["extendedKeyUsage=clientAuth"])
        (KEYS / f"{name}.conf").write_text(CONFIG.format(keys=KEYS, name=name, address=ADDRESS))
    openssl("genrsa", "-out", "accounts.key", "2048")
    openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
    (KEYS / "done").touch()
