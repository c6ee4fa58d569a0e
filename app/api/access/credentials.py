"""Who asks: the API key or token of a request, or a certificate. Synchronous; no key is kept.

`Authorization: Bearer <key>`, or Basic with the key as password and any user name, or as user name
without a password, so that `curl -u` works; or `Authorization: Bearer <token>`, where tokens of an
issuer are taken. A client's certificate counts only where no `Authorization` is sent: a bad one is
never replaced. Nobody is ever asked for Basic: a browser would keep it and send it for any page. Of
a key the cost is one look-up.
"""

import base64
import binascii
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Protocol

from app.api.http.request_context import Certificate
from app.domain.access.caller import Anybody, Caller, KeyHolder, KeyringSource, Shown
from app.domain.access.keyring import Keyring
from app.domain.access.keys import key_id_of
from app.domain.access.refusals import Unauthorized
from app.domain.clock import Clock
from app.domain.limits import TOKEN_LEEWAY_S
from app.domain.positions import TimestampMs
from app.runtime.secure.tokens import TokenRefused, TokenVerifier

AUTHORIZATION: Final = b"authorization"
_BEARER: Final = b"Bearer "
_TOKEN: Final = b"eyJ"
"""How the base64 of a JSON object begins."""
_HEADER_BYTES_MAX: Final = 1_024
"""Ten times a key; what is longer is neither decoded nor hashed."""


class KeySource(KeyringSource, Protocol):
    """Where the keys are that are known now, and where it is noted that one was shown."""

    @property
    def used_keys(self) -> set[str]: ...


class Credentials:
    """Asks each request for a key, once the node is closed."""

    def __init__(
        self,
        source: KeySource,
        clock: Clock,
        tokens: TokenVerifier | None = None,
        certificates: Mapping[str, str] | None = None,
    ) -> None:
        """`certificates` are names in certificates, `DNS:billing.example`, and whose they are."""
        self._tokens = tokens
        self._certificates = certificates or {}
        self.source = source
        self.clock = clock
        self.anybody = Anybody(source)
        """Who comes without a key while the node is open."""
        self._used = source.used_keys.add
        self._keyring: Keyring | None = None
        self._holders: dict[bytes, KeyHolder] = {}
        """Of keys that were shown since the keyring changed, by digest: no more than there are."""

    def check(
        self, headers: Mapping[bytes, bytes], certificate: Certificate | None = None
    ) -> Caller:
        """Who asks, or `Unauthorized`, or `PolicyTooOld`. `certificate` is the connection's."""
        header = headers.get(AUTHORIZATION)
        if header is None:
            return self._certified(certificate)
        key = header[7:] if header[:7] == _BEARER else _key_in(header)
        if self._tokens is not None and key is not None and key[:3] == _TOKEN:
            return self._bearer_of(self._tokens, key)
        if key is None or len(key) > _HEADER_BYTES_MAX:
            raise _no_key()
        source = self.source
        keyring = source.keyring
        if keyring is not self._keyring:
            self._keyring = keyring
            self._holders = {}
        digest = sha256(key).digest()
        holder = self._holders.get(digest)
        if holder is None:
            found = keyring.keys.get(digest)
            if found is None:
                raise _no_key() if key_id_of(key.decode("latin-1")) is None else _not_known()
            holder = self._holders[digest] = KeyHolder(source, digest, found, self.clock.now_ms)
        if holder.expires_ms is not None and holder.expires_ms <= self.clock.now_ms():
            raise _not_known()
        if source.age.is_over:
            raise source.age.refusal()
        self._used(holder.key_id)
        return holder

    def _refuse_late(self) -> None:
        """Raise `PolicyTooOld` when nobody is to be served by what is known."""
        if self.source.age.is_over:
            raise self.source.age.refusal()

    def _bearer_of(self, tokens: TokenVerifier, text: bytes) -> Caller:
        try:
            token = tokens.verify(text)
        except TokenRefused as error:
            raise Unauthorized(str(error)) from error
        self._refuse_late()
        ends_ms = TimestampMs(token.expires_ms + TOKEN_LEEWAY_S * 1_000)
        return Shown(self.source, token.subject, token.roles, ends_ms, self.clock.now_ms)

    def _certified(self, certificate: Certificate | None) -> Caller:
        """Whom the certificate of the connection names. Raises `Unauthorized`."""
        if certificate is None or not self._certificates:
            raise Unauthorized("this node serves only who shows an API key")
        mapped = self._certificates
        found = {mapped[name] for name in certificate.names if name in mapped}
        if len(found) != 1:
            raise Unauthorized(
                "the client's certificate names no principal of this node, or several"
            )
        name = found.pop()
        principal = self.source.keyring.principals.get(name)
        if principal is None or principal.is_disabled:
            raise Unauthorized(
                "the principal that the client's certificate names is not known here"
            )
        self._refuse_late()
        return Shown(self.source, name, None, certificate.ends_ms, self.clock.now_ms)


def _no_key() -> Unauthorized:
    return Unauthorized("what the header Authorization has is not an API key")


def _not_known() -> Unauthorized:
    return Unauthorized("this API key is not known here, was revoked, or has expired")


def _key_in(header: bytes) -> bytes | None:
    """The key that the header carries; None when it has neither form."""
    scheme, _, rest = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() == b"basic" and len(header) <= _HEADER_BYTES_MAX:
        try:
            user, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        except binascii.Error:
            return None
        return (password or user) if colon else None
    return None
