"""PyKMIP's server, and its client that makes keys. Run by the Python that has PyKMIP (target/tools/bin/python):

pykmip.py serve FOLDER PORT CERTIFICATE KEY AUTHORITIES
pykmip.py create COUNT PORT CERTIFICATE KEY AUTHORITIES     prints the new keys' unique identifiers
"""

import multiprocessing
import sys
from pathlib import Path
from types import SimpleNamespace


def serve(folder, port, certificate, key, authorities):
    from kmip.services.server import KmipServer

    # Else a process of its own has the policies, which stays behind when the server is killed.
    multiprocessing.Manager = lambda: SimpleNamespace(dict=dict, shutdown=lambda: None)
    folder = Path(folder)
    (folder / "policies").mkdir(exist_ok=True)
    server = KmipServer(
        hostname="127.0.0.1",
        port=int(port),
        certificate_path=certificate,
        key_path=key,
        ca_path=authorities,
        auth_suite="TLS1.2",
        config_path=None,
        log_path=str(folder / "pykmip.log"),
        policy_path=str(folder / "policies"),
        enable_tls_client_auth=True,
        # With DEBUG it writes the keys that it gives out.
        logging_level="INFO",
        database_path=str(folder / "pykmip.db"),
    )
    with server:
        server.serve()


def create(count, port, certificate, key, authorities):
    from kmip import enums
    from kmip.pie.client import ProxyKmipClient

    client = ProxyKmipClient(
        hostname="127.0.0.1", port=int(port), cert=certificate, key=key, ca=authorities, ssl_version="PROTOCOL_TLSv1_2"
    )
    with client:
        for _ in range(int(count)):
            print(client.create(enums.CryptographicAlgorithm.AES, 256))


if __name__ == "__main__":
    {"serve": serve, "create": create}[sys.argv[1]](*sys.argv[2:])
