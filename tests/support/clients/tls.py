"""Certificates for tests: an authority of their own, and files as an operator would have them."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import trustme


@dataclass
class TlsPlace:
    """A directory with the files of a node, whose certificate is of 127.0.0.1 and localhost."""

    directory: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.issue()

    @property
    def cert_file(self) -> Path:
        return self.directory / "cert.pem"

    @property
    def key_file(self) -> Path:
        return self.directory / "key.pem"

    @property
    def authority_file(self) -> Path:
        """For `curl --cacert`, and for a node that asks clients for certificates."""
        return self.directory / "authority.pem"

    @property
    def settings(self) -> dict[str, Path]:
        return {"tls_cert_file": self.cert_file, "tls_key_file": self.key_file}

    @property
    def flags(self) -> list[str]:
        return ["--tls-cert-file", str(self.cert_file), "--tls-key-file", str(self.key_file)]

    def issue(self, *names: str) -> None:
        """A new certificate in the place of the one before."""
        issued = self.authority.issue_cert(*(names or ("127.0.0.1", "localhost")))
        self.authority.cert_pem.write_to_path(str(self.authority_file))
        self.key_file.write_bytes(issued.private_key_pem.bytes())
        self.key_file.chmod(0o600)
        self.cert_file.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))

    def client(self, *names: str) -> ssl.SSLContext:
        """What a client trusts; with names it shows a certificate of them."""
        context = ssl.create_default_context(cafile=self.authority_file)
        if names:
            self.authority.issue_cert(*names).configure_cert(context)
        return context
