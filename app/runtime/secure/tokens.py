"""JSON Web Tokens of one issuer, checked with the public keys of a file (JWKS). Never fetches.

What is cheap is checked before the signature, which takes up to a tenth of a millisecond: form,
size, algorithm, key, issuer, audience, times. The algorithm is one of those of the key, never the
token's choice, and keys or addresses of keys in a token are not looked at. Good tokens are
remembered by their digest until they expire, at most `TOKENS_REMEMBERED_MAX`. Event loop only.
"""

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import jwt

from app.domain.limits import (
    TOKEN_BYTES_MAX,
    TOKEN_LEEWAY_S,
    TOKEN_ROLES_MAX,
    TOKEN_SUBJECT_CHARS_MAX,
    TOKENS_REMEMBERED_MAX,
)
from app.domain.positions import TimestampMs

_LOG: Final = logging.getLogger(__name__)

_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By type of key and curve. No symmetric ones: whoever checks could make them."""
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_PARTS: Final = 3
_RSA_BITS_MIN: Final = 2_048
_THUMBED: Final = ("crv", "e", "kty", "n", "x", "y")
_SETTING: Final = "oidc_jwks_file"
_WHERE_FROM: Final = (
    'save what stands at the jwks_uri of the issuer\'s /.well-known/openid-configuration: {"keys": '
    "[…]}"
)


class UnusableTokenKeys(Exception):
    """A JWKS file that no token can be checked with; the text says why."""


class TokenRefused(Exception):
    """A token that does not count here; the text says why, and nothing of the token."""


class TokenSettings(NamedTuple):
    """Whose tokens count, for whom and how long, and what they say of roles."""

    issuer: str
    audience: str
    roles_claim: str
    roles: Mapping[str, str]
    """A value of the claim → the role that it is here."""
    lifetime_s_max: int = 86_400
    """From when it was issued, else from now, until it expires. 0: any."""


class Token(NamedTuple):
    """What a good token says."""

    subject: str
    """`oidc:<issuer>#<sub>`: never the name of a principal of this cluster."""
    roles: tuple[str, ...]
    expires_ms: TimestampMs
    signed_with: str
    """The thumbprint of the key (RFC 7638)."""


class _Key(NamedTuple):
    algorithms: tuple[str, ...]
    key: Any
    thumbprint: str


class TokenVerifier:
    """Checks tokens with the keys of a file, which is read again when it is replaced."""

    def __init__(
        self, settings: TokenSettings, jwks_file: Path, now_ms: Callable[[], TimestampMs]
    ) -> None:
        """Raises `UnusableTokenKeys`."""
        self._settings = settings
        self._file = jwks_file
        self._now_ms = now_ms
        self._content = self._read()
        self._keys = _keys_in(self._content, jwks_file)
        self._thumbprints = _thumbprints_of(self._keys)
        self._good: OrderedDict[bytes, Token] = OrderedDict()

    def refresh(self) -> bool:
        """Look at the file again; whether it has other keys. A faulty one is told of in the log."""
        try:
            content = self._read()
            if content == self._content:
                return False
            self._content = content
            self._keys = _keys_in(content, self._file)
            self._thumbprints = _thumbprints_of(self._keys)
        except UnusableTokenKeys as error:
            _LOG.error("the keys of tokens stay as they were: %s", error)
            return False
        self._good.clear()
        return True

    def verify(self, token: bytes) -> Token:
        """What the token says. Raises `TokenRefused`."""
        if len(token) > TOKEN_BYTES_MAX:
            raise TokenRefused(f"the token has over {TOKEN_BYTES_MAX} bytes")
        digest = hashlib.sha256(token).digest()
        found = self._good.get(digest)
        if found is None:
            found = self._check(token)
            if len(self._good) >= TOKENS_REMEMBERED_MAX:
                self._good.popitem(last=False)
            self._good[digest] = found
        if found.expires_ms + TOKEN_LEEWAY_S * 1_000 <= self._now_ms():
            self._good.pop(digest, None)
            raise TokenRefused("the token has expired")
        return found

    def has_key_of(self, token: Token) -> bool:
        """Whether the key that signed it is still among those of the file."""
        return token.signed_with in self._thumbprints

    def _check(self, token: bytes) -> Token:
        parts = token.split(b".")
        if len(parts) != _PARTS:
            raise TokenRefused("the token has not three parts")
        header, claims = _json_in(parts[0]), _json_in(parts[1])
        key, algorithm = self._key_for(header)
        said = self._cheap(claims, key.thumbprint)
        try:
            jwt.api_jws.decode(token, key.key, algorithms=[algorithm])
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise TokenRefused("the signature of the token is not right") from error
        return said

    def _key_for(self, header: Mapping[str, Any]) -> tuple[_Key, str]:
        kind = header.get("typ")
        is_taken = kind is None or (isinstance(kind, str) and kind.lower() in _TYPES)
        if "crit" in header or not is_taken:
            raise TokenRefused("the token is of a kind that is not taken here")
        key_id = header.get("kid")
        if key_id is None and len(self._keys) == 1:
            key_id = next(iter(self._keys))
        found = self._keys.get(key_id) if isinstance(key_id, str) else None
        if found is None:
            raise TokenRefused("the token is signed with a key that is not known here")
        if header.get("alg") not in found.algorithms:
            raise TokenRefused("the token is signed in a way that is not one of its key")
        return found, str(header["alg"])

    def _cheap(self, claims: Mapping[str, Any], signed_with: str) -> Token:
        """What the claims say, when they are for here and for now."""
        settings = self._settings
        if claims.get("iss") != settings.issuer:
            raise TokenRefused("the token is of another issuer")
        audience = claims.get("aud")
        if settings.audience not in (audience if isinstance(audience, list) else [audience]):
            raise TokenRefused("the token is for another audience")
        expires_s = self._expiry_in(claims)
        subject = claims.get("sub")
        if not isinstance(subject, str) or not _is_subject(subject):
            raise TokenRefused("the token does not say whom it is of")
        name = f"oidc:{settings.issuer}#{subject}"
        expires_ms = TimestampMs(int(expires_s * 1_000))
        return Token(name, self._roles(claims), expires_ms, signed_with)

    def _expiry_in(self, claims: Mapping[str, Any]) -> float:
        """When the token ends, in seconds, when it has begun and does not last for too long."""
        now_s = self._now_ms() / 1_000
        expires_s = _time_in(claims, "exp")
        if expires_s is None:
            raise TokenRefused("the token does not say when it expires")
        if expires_s + TOKEN_LEEWAY_S <= now_s:
            raise TokenRefused("the token has expired")
        begins = {name: _time_in(claims, name) for name in ("nbf", "iat")}
        if any(each is not None and each - TOKEN_LEEWAY_S > now_s for each in begins.values()):
            raise TokenRefused("the token counts only later: are the clocks right?")
        issued_s = begins["iat"]
        longest_s = self._settings.lifetime_s_max
        if longest_s and expires_s - (now_s if issued_s is None else issued_s) > longest_s:
            raise TokenRefused(
                f"the token is for longer than {longest_s} s, the longest that this node takes "
                "(oidc_lifetime_max): let the issuer make shorter ones"
            )
        return expires_s

    def _roles(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        said = claims.get(self._settings.roles_claim)
        values = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
        mapped = self._settings.roles
        known = [mapped[each] for each in values[:TOKEN_ROLES_MAX] if _is_key(each, mapped)]
        return tuple(dict.fromkeys(known))

    def _read(self) -> bytes:
        try:
            return self._file.read_bytes()
        except OSError as error:
            raise UnusableTokenKeys(
                f"{_SETTING} = {self._file}: {error.strerror}; {_WHERE_FROM}"
            ) from error


def _is_key(value: object, mapped: Mapping[str, str]) -> bool:
    return isinstance(value, str) and value in mapped


def _is_subject(text: str) -> bool:
    return 0 < len(text) <= TOKEN_SUBJECT_CHARS_MAX and text.isascii() and text.isprintable()


def _time_in(claims: Mapping[str, Any], name: str) -> float | None:
    given = claims.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) < 2**53:
        raise TokenRefused(f"the token's {name} is not a time")
    return float(given)


def _json_in(part: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(jwt.utils.base64url_decode(part))
    except (ValueError, RecursionError) as error:
        raise TokenRefused("the token cannot be read") from error
    if not isinstance(found, dict):
        raise TokenRefused("the token cannot be read")
    return found


def _keys_in(content: bytes, file: Path) -> Mapping[str, _Key]:
    """The keys of a JWKS document by their ids; those that nothing here can be checked with are
    passed over, with a warning (RFC 7517, 5). Raises `UnusableTokenKeys`."""
    try:
        listed = json.loads(content)["keys"]
        found = {
            str(each["kid"]): made
            for each in listed
            if each.get("use") != "enc" and (made := _key_of(each, file)) is not None
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableTokenKeys(
            f"{_SETTING} = {file} is no JWKS document; {_WHERE_FROM}"
        ) from error
    if not found:
        raise UnusableTokenKeys(
            f"{_SETTING} = {file} has no keys that tokens are checked with: with a kid, of RSA "
            f"from {_RSA_BITS_MIN} bits on, of P-256, P-384 or P-521, or Ed25519"
        )
    return found


def _thumbprints_of(keys: Mapping[str, _Key]) -> frozenset[str]:
    return frozenset(each.thumbprint for each in keys.values())


def _key_of(document: Mapping[str, Any], file: Path) -> _Key | None:
    """The key; None for one that is passed over."""
    kind = document["kty"], document.get("crv")
    shown = document.get("kid")
    if "d" in document or kind[0] == "oct":
        raise UnusableTokenKeys(
            f"{_SETTING} = {file}: the key {shown!r} is secret; symmetric and private keys do not "
            "belong there"
        )
    algorithms = _ALGORITHMS.get(kind, ())
    named = document.get("alg")
    if named is not None:
        algorithms = tuple(each for each in algorithms if each == named)
    if not isinstance(shown, str) or not algorithms:
        why = "it has no kid" if algorithms else "no token is checked with its kind here"
        _pass_over(file, shown, why)
        return None
    try:
        made = jwt.PyJWK(dict(document), algorithm=algorithms[0])
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        _pass_over(file, shown, "it cannot be read")
        return None
    if kind[0] == "RSA" and made.key.key_size < _RSA_BITS_MIN:
        _pass_over(file, shown, f"it has under {_RSA_BITS_MIN} bits")
        return None
    return _Key(algorithms, made.key, _thumbprint_of(document))


def _pass_over(file: Path, key_id: object, why: str) -> None:
    _LOG.warning("%s = %s: the key %r is passed over: %s", _SETTING, file, key_id, why)


def _thumbprint_of(document: Mapping[str, Any]) -> str:
    """Of the members that make the key, whatever else is said of it."""
    said = {name: document[name] for name in _THUMBED if name in document}
    text = json.dumps(said, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
