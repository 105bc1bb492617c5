"""An etcd that proves who it is and asks others to: certificates, users, roles, as an operator sets them up."""

import datetime
import ipaddress
import subprocess

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .process import Process, free_port, wait_until

HOST = "127.0.0.1"
ROOT_PASSWORD = "root of all"


def _name(common_name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """A certificate authority, its certificate in a file."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self._begin(self.name, self.key, days=30).add_extension(constraints, critical=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._signed(made))

    def _begin(self, common_name, key, days):
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder().subject_name(_name(common_name)).issuer_name(_name(self.name))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        first = min(now, now + datetime.timedelta(days=days)) - datetime.timedelta(days=1)
        return made.not_valid_before(first).not_valid_after(now + datetime.timedelta(days=days))

    def _signed(self, made):
        return made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name, common_name, address=HOST, days=30):
        """Writes NAME.crt and NAME.key, in the place of those that are there; returns both paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = self._begin(common_name, key, days).add_extension(names, False).add_extension(uses, False)
        paths = (self.folder / f"{name}.crt", self.folder / f"{name}.key")
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        for path, text in zip(paths, (self._signed(made), secret), strict=True):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(text)
            fresh.chmod(0o600)
            fresh.rename(path)
        return paths


class Etcd:
    """One member with TLS; `clients` is the authority whose certificates it wants of others, if it wants any."""

    def __init__(self, folder, authority, clients=None, options=()):
        self.folder, self.authority, self.clients, self.options = folder, authority, clients, options
        self.port, self.peer_port = free_port(), free_port()
        self.url = f"https://{HOST}:{self.port}"
        self.authority.issue("etcd", "etcd")
        self.process = None
        self.has_users = False

    @property
    def alive(self):
        return self.process is not None and self.process.alive

    def start(self):
        peer = f"http://{HOST}:{self.peer_port}"
        command = ["etcd", "--name", "only", "--data-dir", self.folder / "etcd", "--logger", "zap"]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"only={peer}"]
        command += ["--cert-file", self.folder / "etcd.crt", "--key-file", self.folder / "etcd.key"]
        if self.clients is not None:
            command += ["--client-cert-auth", "--trusted-ca-file", self.clients.path]
        self.process = Process([*command, *self.options], self.folder / "etcd.log")
        wait_until(lambda: self.ctl("member", "list", check=False).returncode == 0, 60, "etcd's answer")
        return self

    def stop(self):
        self.process.stop()

    def ctl(self, *words, check=True, given=None):
        """etcdctl as the operator, who is root once there are users."""
        if self.clients is not None and not (self.folder / "operator.crt").exists():
            self.clients.issue("operator", "")
        command = ["etcdctl", "--endpoints", self.url, "--cacert", self.authority.path]
        if self.clients is not None:
            command += ["--cert", self.folder / "operator.crt", "--key", self.folder / "operator.key"]
        if self.has_users:
            command += ["--user", f"root:{ROOT_PASSWORD}"]
        done = subprocess.run(
            [*map(str, command), *words], capture_output=True, text=True, timeout=60, input=given, check=False
        )
        assert not check or done.returncode == 0, f"etcdctl {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done

    def set_password(self, user, password):
        self.ctl("user", "passwd", user, "--interactive=false", given=f"{password}\n")

    def let_in(self, *users):
        """Users (NAME, or NAME:PASSWORD) who may what nodes have to; from now on etcd asks who asks."""
        self.ctl("role", "add", "azekura")
        self.ctl("role", "grant-permission", "azekura", "--prefix=true", "readwrite", "/azekura/")
        for user in users:
            self.ctl("user", "add", user, *([] if ":" in user else ["--no-password"]))
            self.ctl("user", "grant-role", user.split(":")[0], "azekura")
        self.ctl("user", "add", f"root:{ROOT_PASSWORD}")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("auth", "enable")
        self.has_users = True
