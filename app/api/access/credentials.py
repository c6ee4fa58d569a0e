"""Which principal asks: by API key or token of a request, or by certificate. Synchronous.

`Authorization: Bearer <key>`, or Basic with the key as password and any user name, or as user name
without a password, so that `curl -u` works; or `Authorization: Bearer <token>`, where tokens of an
issuer are taken. A client's certificate counts only where no `Authorization` is sent: a bad one is
never replaced. Nobody is ever asked for Basic: a browser would keep it and send it for any page. Of
a key the cost is one SHA-256 and one look-up; on a connection that shows the same header again, one
comparison. Nothing is kept of wrong ones, and of right ones nothing beyond their connection.

Who may come from some addresses only is asked for its address with each request, as a proxy brings
many clients on one connection; from another one the refusal is that of what is not known.
"""

import base64
import binascii
from collections.abc import Callable, Hashable, Mapping
from hashlib import sha256
from typing import Final, Protocol

from app.api.http.request_context import Certificate, ConnectionMemory
from app.domain.access.accounts import Fence, fence_of
from app.domain.access.caller import Anybody, Caller, KeyHolder, KeyringSource, Known, Shown
from app.domain.access.keyring import Keyring
from app.domain.access.keys import key_id_of
from app.domain.access.refusals import Unauthorized
from app.domain.clock import Clock
from app.domain.limits import TOKEN_LEEWAY_S, TOKENS_REMEMBERED_MAX
from app.domain.positions import TimestampMs
from app.runtime.secure.tokens import TokenRefused, TokenVerifier

AUTHORIZATION: Final = b"authorization"
_BEARER: Final = b"Bearer "
_TOKEN: Final = b"eyJ"
"""How the base64 of a JSON object begins."""
Client = tuple[str, int]
"""Address and port that a request came from, as the node believes it: what a scope has."""
_NEVER_MS: Final = TimestampMs(1 << 62)
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
        self.used = source.used_keys.add
        """Takes the id of a key that was shown."""
        self._keyring: Keyring | None = None
        self._holders: dict[bytes, KeyHolder] = {}
        """Of keys that were shown since the keyring changed, by digest: no more than there are."""
        self._shown: dict[Hashable, Shown] = {}
        """Of tokens and certificates, likewise, at most `TOKENS_REMEMBERED_MAX`."""
        self._relayed_keyring: Keyring | None = None
        self._relayed: dict[str, Caller] = {}
        """Principals that asked other nodes since the keyring changed."""

    def check(
        self,
        header: bytes | None,
        certificate: Certificate | None = None,
        memory: ConnectionMemory | None = None,
        client: Client | None = None,
    ) -> Caller:
        """Who asks, or `Unauthorized`, or `PolicyTooOld`. `header` is the request's Authorization,
        and `client` whom it came from; `certificate` and `memory` are the connection's."""
        if header is None:
            return self._certified(certificate, client)
        source = self.source
        if memory is not None and memory.keyring is source.keyring:
            known = memory.caller
            if known is not None and memory.authorization == header:
                if known.is_lasting and not source.age.is_over:
                    self.used(known.key_id)
                    return known
                return self.live(known, client)
        return self._check_header(header, memory, client)

    def live(self, holder: KeyHolder, client: Client | None) -> KeyHolder:
        """The holder of a key that is known, unless it has expired, or is not let in from there."""
        if holder.expires_ms is not None and holder.expires_ms <= self.clock.now_ms():
            raise _not_known()
        if _is_elsewhere(holder, client):
            raise _not_known(elsewhere=holder.name)
        if self.source.age.is_over:
            raise self.source.age.refusal()
        self.used(holder.key_id)
        return holder

    def _check_header(
        self, header: bytes, memory: ConnectionMemory | None, client: Client | None
    ) -> Caller:
        key = header[7:].strip() if header[:7] == _BEARER else _key_in(header)
        if self._tokens is not None and key is not None and key[:3] == _TOKEN:
            return self._bearer_of(self._tokens, key)
        if key is None or len(key) > _HEADER_BYTES_MAX:
            raise _no_key()
        keyring = self._newest()
        digest = sha256(key).digest()
        holder = self._holders.get(digest)
        if holder is None:
            found = keyring.keys.get(digest)
            if found is None:
                raise _no_key() if key_id_of(key.decode("latin-1")) is None else _not_known()
            holder = KeyHolder(self.source, digest, found, self.clock.now_ms)
            holder.fence = self._fence_of(found.principal)
            holder.is_lasting = holder.fence is None and holder.expires_ms is None
            self._holders[digest] = holder
        self.live(holder, client)
        if memory is not None:
            memory.authorization, memory.keyring, memory.caller = header, keyring, holder
        return holder

    def _newest(self) -> Keyring:
        """What is known now; callers that were made by what was known before are forgotten."""
        keyring = self.source.keyring
        if keyring is not self._keyring:
            self._keyring = keyring
            self._holders = {}
            self._shown = {}
        return keyring

    def _fence_of(self, name: str) -> Fence | None:
        """Where a principal is let in from; None: from anywhere."""
        principal = self.source.keyring.principals.get(name)
        return None if principal is None else fence_of(principal.allowed_from)

    def of_other_node(
        self, name: str | None, roles: tuple[str, ...] | None, ends_ms: int | None
    ) -> Caller:
        """Who asked another node, which has checked what was shown, and from where. Raises
        `Unauthorized`."""
        keyring = self.source.keyring
        if name is None:
            if keyring.is_closed:
                raise Unauthorized("this node is closed, and another node asks for nobody")
            return self.anybody
        self._refuse_late()
        if roles is None:
            principal = keyring.principals.get(name)
            if principal is None or principal.is_disabled:
                raise Unauthorized("the principal that asked another node is not known here")
        if ends_ms is not None:
            return Shown(self.source, name, roles, TimestampMs(ends_ms), self.clock.now_ms)
        if keyring is not self._relayed_keyring:
            self._relayed_keyring, self._relayed = keyring, {}
        found = self._relayed.get(name)
        if found is None:
            found = Shown(self.source, name, roles, _NEVER_MS, self.clock.now_ms)
            self._relayed[name] = found
        return found

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

        def is_known() -> bool:
            return tokens.has_key_of(token)

        return self._shown_by(token, token.subject, token.roles, ends_ms, is_known)

    def _shown_by(
        self,
        what: Hashable,
        name: str,
        roles: tuple[str, ...] | None,
        ends_ms: TimestampMs,
        is_known: Callable[[], bool] | None = None,
    ) -> Shown:
        """The caller who showed `what`: the same for each of its requests, so that what was decided
        for one is remembered for the next."""
        self._newest()
        found = self._shown.get(what)
        if found is None:
            if len(self._shown) >= TOKENS_REMEMBERED_MAX:
                self._shown.clear()
            now_ms = self.clock.now_ms
            found = Shown(self.source, name, roles, ends_ms, now_ms, is_known)
            if roles is None:  # the name in a token is no principal that is kept
                found.fence = self._fence_of(name)
            self._shown[what] = found
        return found

    def _certified(self, certificate: Certificate | None, client: Client | None) -> Caller:
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
            raise _not_certified()
        shown = self._shown_by((name, certificate.ends_ms), name, None, certificate.ends_ms)
        if _is_elsewhere(shown, client):
            raise _not_certified(elsewhere=name)
        self._refuse_late()
        return shown


def _is_elsewhere(known: Known, client: Client | None) -> bool:
    """Whether the client has an address that the principal is not let in from."""
    fence = known.fence
    return fence is not None and not fence.has(client[0] if client else "")


def _no_key() -> Unauthorized:
    return Unauthorized("what the header Authorization has is not an API key")


def _not_known(elsewhere: str | None = None) -> Unauthorized:
    return Unauthorized(
        "this API key is not known here, was revoked, has expired, or does not count from this "
        "address",
        elsewhere=elsewhere,
    )


def _not_certified(elsewhere: str | None = None) -> Unauthorized:
    return Unauthorized(
        "the principal that the client's certificate names is not known here, or not from this "
        "address",
        elsewhere=elsewhere,
    )


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
