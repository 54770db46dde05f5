"""A private authority, with a certificate for a server on this machine and one for its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Certificates:
    """Files in a folder; the certificates of one authority are strangers to those of another."""

    def __init__(self, folder: Path) -> None:
        import trustme

        self.authority = folder / "authority.pem"
        self.server = folder / "server.pem"  # the key and the certificate, in one file
        self.client = folder / "client.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        server = authority.issue_cert("localhost", "127.0.0.1")
        server.private_key_and_cert_chain_pem.write_to_path(str(self.server))
        client = authority.issue_cert("client@leasehold.test")
        client.private_key_and_cert_chain_pem.write_to_path(str(self.client))

    def options(self) -> list[str]:
        """What a Redis server is started with: it admits only clients that show a certificate."""
        return [
            *("--tls-ca-cert-file", str(self.authority)),
            *("--tls-cert-file", str(self.server)),
            *("--tls-key-file", str(self.server)),
            *("--tls-auth-clients", "yes"),
        ]

    def arguments(self) -> dict[str, Any]:
        """What redis-py is called with."""
        client = str(self.client)
        return {"ssl_ca_certs": str(self.authority), "ssl_certfile": client, "ssl_keyfile": client}
