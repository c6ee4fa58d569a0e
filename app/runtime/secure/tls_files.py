"""TLS from files: a context for handshakes, made anew when the files are replaced.

Connections keep the context that they began with, so a certificate, its key and the authorities of
clients change without a restart, and a file that is half written changes nothing: the context
before it stays until the new one is whole. TLS 1.2 at least. Event loop only.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TlsPaths:
    """A certificate in PEM, its key, and authorities of the other side; and how their settings are
    named."""

    cert_file: Path
    key_file: Path
    ca_file: Path | None
    cert_setting: str
    key_setting: str
    ca_setting: str


class TlsFiles:
    """The files, and the contexts that were made of them last."""

    def __init__(
        self, paths: TlsPaths, make: Callable[[TlsPaths], tuple[ssl.SSLContext, ...]]
    ) -> None:
        self._paths = paths
        self._make = make
        self._stamp = self._told_of = self._look()
        self._contexts = make(paths)

    @classmethod
    def of(
        cls, cert_file: Path | None, key_file: Path | None, client_ca_file: Path | None
    ) -> Self | None:
        """For clients. None without a certificate. Raises `UnusableCertificate`."""
        if cert_file is None or key_file is None:
            return None
        names = ("tls_cert_file", "tls_key_file", "tls_client_ca_file")
        return cls(TlsPaths(cert_file, key_file, client_ca_file, *names), _for_clients)

    @classmethod
    def of_nodes(
        cls, cert_file: Path | None, key_file: Path | None, ca_file: Path | None
    ) -> Self | None:
        """For the other nodes of a cluster, each of which shows a certificate, too. None without
        files. Raises `UnusableCertificate`."""
        if cert_file is None or key_file is None or ca_file is None:
            return None
        names = ("cluster_tls_cert_file", "cluster_tls_key_file", "cluster_tls_ca_file")
        return cls(TlsPaths(cert_file, key_file, ca_file, *names), _for_nodes)

    def context(self) -> ssl.SSLContext:
        """For the handshake that begins now, of a connection that was accepted."""
        return self._contexts[0]

    def asking_context(self) -> ssl.SSLContext:
        """For a connection to another node; `of_nodes` alone has it."""
        return self._contexts[1]

    def refresh(self) -> bool:
        """Look at the files again; whether they are others. Faulty ones are told of once, in the
        log, and tried again: what they lacked may have been a descriptor."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        try:
            self._contexts = self._make(self._paths)
        except UnusableCertificate as error:
            if stamp != self._told_of:
                _LOG.error("the new certificate is not used, the one before stays: %s", error)
                self._told_of = stamp
            return False
        self._stamp = stamp
        _LOG.info("the certificate of %s is used from now on", self._paths.cert_file)
        return True

    def _look(self) -> _Stamp:
        paths = self._paths
        return tuple(map(_stamp_of, (paths.cert_file, paths.key_file, paths.ca_file)))


def _for_clients(paths: TlsPaths) -> tuple[ssl.SSLContext, ...]:
    context = _with_certificate(ssl.PROTOCOL_TLS_SERVER, paths)
    if paths.ca_file is not None:  # a connection without one is taken: it may bring a key
        _ask_for_certificate(context, paths, ssl.CERT_OPTIONAL)
    _tell_of_times(paths)
    return (context,)


def _for_nodes(paths: TlsPaths) -> tuple[ssl.SSLContext, ...]:
    answering = _with_certificate(ssl.PROTOCOL_TLS_SERVER, paths)
    asking = _with_certificate(ssl.PROTOCOL_TLS_CLIENT, paths)  # which checks the host's name
    for context in (answering, asking):
        _ask_for_certificate(context, paths, ssl.CERT_REQUIRED)
    _tell_of_times(paths)
    return (answering, asking)


def _with_certificate(protocol: int, paths: TlsPaths) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(ALPN))
    certificate = f"{paths.cert_setting} = {paths.cert_file}"

    def no_password() -> str:
        raise UnusableCertificate(
            f"{paths.key_setting} has a password; give the key without one, mode 0600"
        )

    try:
        read_secret(paths.key_file, paths.key_setting)
        context.load_cert_chain(paths.cert_file, paths.key_file, password=no_password)
    except UnusableSecretFile as error:
        raise UnusableCertificate(str(error)) from error
    except FileNotFoundError as error:  # of the certificate: the key was read
        raise UnusableCertificate(
            f"{certificate} is not there; give the path of the certificate, in PEM, with those "
            "between it and its authority behind it"
        ) from error
    except OSError as error:  # ssl.SSLError is one, too
        raise UnusableCertificate(
            f"{certificate} with {paths.key_setting} = {paths.key_file}: {_why(error)}"
        ) from error
    return context


def _ask_for_certificate(context: ssl.SSLContext, paths: TlsPaths, mode: ssl.VerifyMode) -> None:
    assert paths.ca_file is not None
    try:
        context.load_verify_locations(paths.ca_file)
    except OSError as error:
        raise UnusableCertificate(f"{paths.ca_setting} = {paths.ca_file}: {_why(error)}") from error
    context.verify_mode = mode


def _tell_of_times(paths: TlsPaths) -> None:
    """Tell of a certificate that clients refuse by now. It is used all the same: who does not look
    at it is served, and nobody would be without it."""
    try:
        found = load_pem_x509_certificate(paths.cert_file.read_bytes())
    except (OSError, ValueError):  # OpenSSL has taken it; that is what counts
        return
    now = datetime.fromtimestamp(SystemClock().now_ms() // 1_000, UTC)
    starts, ends = found.not_valid_before_utc, found.not_valid_after_utc
    if ends <= now:
        why = f"has expired ({ends.isoformat()})"
    elif starts > now:
        by_clock = f"it is {now.isoformat()} by the clock of this machine"
        why = f"is valid from {starts.isoformat()} on, and {by_clock}"
    else:
        return
    _LOG.error(
        "the certificate %s = %s %s: the other side refuses it; put another in its place, key"
        " first: it is used within 5 seconds",
        *(paths.cert_setting, paths.cert_file, why),
    )


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
