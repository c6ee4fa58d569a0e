"""Who asks: the API key of a request. Synchronous, one look-up; nothing about a key is kept.

`Authorization: Bearer <key>`, or Basic with the key as password and any user name, so that
`curl -u` works. Nobody is ever asked for Basic: a browser would keep it and send it for any page.
"""

import base64
import binascii
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Protocol

from app.domain.access.caller import Anybody, KeyHolder, KeyringSource
from app.domain.access.keyring import Keyring
from app.domain.access.keys import key_id_of
from app.domain.access.refusals import Unauthorized
from app.domain.clock import Clock

AUTHORIZATION: Final = b"authorization"
_BEARER: Final = b"Bearer "
_HEADER_BYTES_MAX: Final = 1_024
"""Ten times a key; what is longer is neither decoded nor hashed."""


class KeySource(KeyringSource, Protocol):
    """Where the keys are that are known now, and where it is noted that one was shown."""

    @property
    def used_keys(self) -> set[str]: ...


class Credentials:
    """Asks each request for a key, once the node is closed."""

    def __init__(self, source: KeySource, clock: Clock) -> None:
        self.source = source
        self.clock = clock
        self.anybody = Anybody(source)
        """Who comes without a key while the node is open."""
        self._used = source.used_keys.add
        self._keyring: Keyring | None = None
        self._holders: dict[bytes, KeyHolder] = {}
        """Of keys that were shown since the keyring changed, by digest: no more than there are."""

    def check(self, headers: Mapping[bytes, bytes]) -> KeyHolder:
        """Who shows the key of the request, or `Unauthorized`."""
        header = headers.get(AUTHORIZATION)
        if header is None:
            raise Unauthorized("this node serves only who shows an API key")
        key = header[7:] if header[:7] == _BEARER else _key_in(header)
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
        self._used(holder.key_id)
        return holder


def _no_key() -> Unauthorized:
    return Unauthorized("what the header Authorization has is not an API key")


def _not_known() -> Unauthorized:
    return Unauthorized("this API key is not known here, was revoked, or has expired")


def _key_in(header: bytes) -> bytes | None:
    """The key that the header carries; None when it has neither form."""
    if len(header) > _HEADER_BYTES_MAX:
        return None
    scheme, _, rest = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() == b"basic":
        try:
            _, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        except binascii.Error:
            return None
        return password if colon else None
    return None
