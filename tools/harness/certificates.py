"""A certificate authority for tests, made with openssl."""

import subprocess

from tools.harness.cluster import HOST

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


class Authority:
    """Signs certificates for servers on the loopback and for their clients."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate, self.key = folder / "ca.pem", folder / "ca.key"
        usage = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign"]
        files = ["-keyout", self.key, "-out", self.certificate]
        openssl("req", "-x509", *NEW_KEY, *files, "-days", 2, "-subj", "/CN=ca", *usage)

    def sign(self, name, usage):
        """A certificate and its key, in files: `usage` is serverAuth or clientAuth."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        openssl("req", *NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions.write_text(
            f"subjectAltName=IP:{HOST},DNS:localhost\nextendedKeyUsage={usage}\n"
            "keyUsage=digitalSignature\nbasicConstraints=CA:FALSE\n"
        )
        signer = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", 2]
        openssl("x509", "-req", "-in", request, *signer, "-out", certificate, "-extfile", extensions)
        key.chmod(0o600)
        return certificate, key
