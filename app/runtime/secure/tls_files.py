"""TLS from files: a context for handshakes, made anew when the files are replaced.

Connections keep the context that they began with, so a certificate, its key and the authorities of
clients change without a restart, and a file that is half written changes nothing: the context
before it stays until the new one is whole. TLS 1.2 at least. Event loop only.
"""

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from cryptography.x509 import load_pem_x509_certificate

from app.runtime.secure.secret_files import UnusableSecretFile, read_secret
from app.runtime.system_clock import SystemClock

_LOG: Final = logging.getLogger(__name__)

ALPN: Final = ("http/1.1",)


class UnusableCertificate(Exception):
    """Files that no TLS can be made of; the text says which and why."""


_Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsFiles:
    """The files, and the context that was made of them last."""

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None = None) -> None:
        self._cert_file = cert_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        self._stamp = self._look()
        self._context = self._make()

    @classmethod
    def of(
        cls, cert_file: Path | None, key_file: Path | None, client_ca_file: Path | None
    ) -> Self | None:
        """None without a certificate. Raises `UnusableCertificate`."""
        if cert_file is None or key_file is None:
            return None
        return cls(cert_file, key_file, client_ca_file)

    def context(self) -> ssl.SSLContext:
        """For the handshake that begins now."""
        return self._context

    def refresh(self) -> bool:
        """Look at the files again; whether they are others. Faulty ones are told of in the log."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._context = self._make()
        except UnusableCertificate as error:
            _LOG.error("the new certificate is not used, the one before stays: %s", error)
            return False
        _LOG.info("the certificate of %s is used from now on", self._cert_file)
        return True

    def _look(self) -> _Stamp:
        return tuple(map(_stamp_of, (self._cert_file, self._key_file, self._client_ca_file)))

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(ALPN))
        try:
            read_secret(self._key_file, "tls_key_file")
            context.load_cert_chain(self._cert_file, self._key_file, password=_no_password)
        except UnusableSecretFile as error:
            raise UnusableCertificate(str(error)) from error
        except FileNotFoundError as error:  # of the certificate: the key was read
            raise UnusableCertificate(
                f"tls_cert_file = {self._cert_file} is not there; give the path of the "
                "certificate, in PEM, with those between it and its authority behind it"
            ) from error
        except OSError as error:  # ssl.SSLError is one, too
            raise UnusableCertificate(
                f"tls_cert_file = {self._cert_file} with tls_key_file = {self._key_file}: "
                f"{_why(error)}"
            ) from error
        _tell_of_times(self._cert_file)
        if self._client_ca_file is not None:
            self._ask_clients(context, self._client_ca_file)
        return context

    @staticmethod
    def _ask_clients(context: ssl.SSLContext, file: Path) -> None:
        """Ask for a certificate, and take a connection without one: it may bring a key."""
        try:
            context.load_verify_locations(file)
        except OSError as error:
            raise UnusableCertificate(f"tls_client_ca_file = {file}: {_why(error)}") from error
        context.verify_mode = ssl.CERT_OPTIONAL


def _tell_of_times(file: Path) -> None:
    """Tell of a certificate that clients refuse by now. It is used all the same: who does not look
    at it is served, and nobody would be without it."""
    try:
        found = load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):  # OpenSSL has taken it; that is what counts
        return
    now = datetime.fromtimestamp(SystemClock().now_ms() // 1_000, UTC)
    what_helps = (
        "clients refuse it; put another in its place, key first: it is used within 5 seconds"
    )
    if found.not_valid_after_utc <= now:
        _LOG.error(
            "the certificate tls_cert_file = %s has expired (%s): %s",
            *(file, found.not_valid_after_utc.isoformat(), what_helps),
        )
    elif found.not_valid_before_utc > now:
        _LOG.error(
            "the certificate tls_cert_file = %s is valid from %s on, and it is %s by the clock of "
            "this machine: %s",
            *(file, found.not_valid_before_utc.isoformat(), now.isoformat(), what_helps),
        )


def _no_password() -> str:
    raise UnusableCertificate("tls_key_file has a password; give the key without one, mode 0600")


def _stamp_of(path: Path | None) -> tuple[int, int, int] | None:
    """What tells one content of a file from another; None when it is not there."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return status and (status.st_mtime_ns, status.st_ino, status.st_size)


def _why(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return error.strerror or "it cannot be read"
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is of another certificate"
    return "it is not PEM" + (f" ({error.reason})" if error.reason else "")
