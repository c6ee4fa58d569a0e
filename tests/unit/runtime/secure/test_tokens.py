"""JSON Web Tokens: whose count, for how long, and what no forger gets past."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import get_default_algorithms

from app.domain.limits import TOKEN_BYTES_MAX, TOKEN_LEEWAY_S, TOKENS_REMEMBERED_MAX
from app.domain.positions import TimestampMs
from app.runtime.secure import tokens
from app.runtime.secure.tokens import (
    Token,
    TokenRefused,
    TokenSettings,
    TokenVerifier,
    UnusableTokenKeys,
)
from tests.support.stores.clock import FakeClock

ISSUER, AUDIENCE = "https://id.example.org", "curlew"
SETTINGS = TokenSettings(ISSUER, AUDIENCE, "groups", {"platform": "admin", "readers": "consumer"})
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
KEYS: dict[str, tuple[str, Any]] = {
    "rsa": ("RS256", RSA_KEY),
    "ec": ("ES256", EC_KEY),
    "ed": ("EdDSA", ED_KEY),
}


def document_of(key_id: str, algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    shown = get_default_algorithms()[algorithm].to_jwk(key.public_key(), as_dict=True)
    return {**shown, "kid": key_id, **more}


def written(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": list(documents)}))
    return path


class World:
    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.file = directory / "jwks.json"
        written(self.file, *(document_of(name, *key) for name, key in KEYS.items()))
        self.verifier = TokenVerifier(SETTINGS, self.file, self.clock.now_ms)

    def claims(self, **changed: Any) -> dict[str, Any]:
        now_s = self.clock.now_ms() / 1_000
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now_s, "exp": now_s + 300}
        return {name: each for name, each in {**claims, **changed}.items() if each is not None}

    def token(self, key_id: str = "rsa", header: Any = None, **changed: Any) -> bytes:
        algorithm, key = KEYS[key_id]
        made = jwt.encode(self.claims(**changed), key, algorithm, {"kid": key_id, **(header or {})})
        return made.encode()

    def why(self, token: bytes) -> str:
        with pytest.raises(TokenRefused) as caught:
            self.verifier.verify(token)
        return str(caught.value)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("key_id", KEYS)
def test_a_good_token_says_who_it_is(world: World, key_id: str) -> None:
    expires_s = world.clock.now_ms() // 1_000 + 300
    said = world.verifier.verify(world.token(key_id, exp=expires_s, groups=["readers", "other"]))
    name, ends_ms = f"oidc:{ISSUER}#ann", TimestampMs(expires_s * 1_000)
    assert said == Token(name, ("consumer",), ends_ms, said.signed_with)


def test_roles_are_those_that_are_mapped(world: World) -> None:
    assert world.verifier.verify(world.token(groups="platform readers admin")).roles == (
        "admin",
        "consumer",
    )
    for said in (None, 7, {"admin": True}, ["admin", 3, ["platform"]]):
        assert world.verifier.verify(world.token(groups=said)).roles == ()


UNSIGNED = base64.urlsafe_b64encode(b'{"alg":"none","kid":"rsa"}').rstrip(b"=")


def forged(world: World) -> dict[str, tuple[bytes, str]]:
    good = world.token()
    head, body, signature = good.split(b".")
    public = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    symmetric = jwt.api_jws.PyJWS()
    confused = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa"}').rstrip(b"=")
    del public, symmetric
    other = jwt.encode(
        world.claims(), rsa.generate_private_key(65_537, 2_048), "RS256", {"kid": "rsa"}
    ).encode()
    elsewhere = base64.urlsafe_b64encode(json.dumps(world.claims(sub="root")).encode())
    return {
        "no signature": (UNSIGNED + b"." + body + b".", "not one of its key"),
        "public key as a secret": (confused + b"." + body + b"." + signature, "not one of its key"),
        "another key of the same id": (other, "signature"),
        "another's signature": (head + b"." + elsewhere.rstrip(b"=") + b"." + signature, "signat"),
        "unknown key": (world.token(header={"kid": "new"}), "not known here"),
        "the algorithm of another key": (world.token("ec", header={"kid": "rsa"}), "not one of"),
        "critical header": (world.token(header={"crit": ["b64"], "b64": True}), "kind"),
        "logout token": (world.token(header={"typ": "logout+jwt"}), "kind"),
        "a kind that is no text": (world.token(header={"typ": ["jwt"]}), "kind"),
        "two parts": (head + b"." + body, "three parts"),
        "no JSON": (b"a.b.c", "cannot be read"),
        "a list": (base64.urlsafe_b64encode(b"[1]") + b"." + body + b".x", "cannot be read"),
        "too long": (good + b"A" * TOKEN_BYTES_MAX, "bytes"),
    }


FORGED = [
    *("no signature", "public key as a secret", "another key of the same id"),
    *("another's signature", "unknown key", "the algorithm of another key", "critical header"),
    *("logout token", "a kind that is no text", "two parts", "no JSON", "a list", "too long"),
]


@pytest.mark.parametrize("name", FORGED)
def test_no_forger_gets_past(world: World, name: str) -> None:
    token, words = forged(world)[name]
    assert words in world.why(token)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": f"{AUDIENCE}2"}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"exp": None}, "when it expires"),
        ({"sub": None}, "whom it is of"),
        ({"sub": ""}, "whom it is of"),
        ({"sub": "a\nb"}, "whom it is of"),
        ({"sub": "x" * 300}, "whom it is of"),
        ({"sub": 7}, "whom it is of"),
    ],
)
def test_what_is_not_for_here_is_refused(world: World, changed: dict[str, Any], words: str) -> None:
    algorithm, key = KEYS["rsa"]
    body = json.dumps(world.claims(**changed)).encode()
    token = jwt.api_jws.encode(body, key, algorithm, {"kid": "rsa"}).encode()
    assert words in world.why(token)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_is_ten_minutes_off_is_noticed(world: World, minutes: int) -> None:
    token = world.token()
    world.clock.set_wall(world.clock.now_ms() + minutes * 60_000)
    assert ("expired" if minutes > 0 else "later") in world.why(token)


@pytest.mark.parametrize("seconds", [-TOKEN_LEEWAY_S + 5, TOKEN_LEEWAY_S - 5])
def test_a_clock_that_is_a_little_off_is_not(world: World, seconds: int) -> None:
    token = world.token(exp=world.clock.now_ms() / 1_000)
    world.clock.set_wall(world.clock.now_ms() + seconds * 1_000)
    world.verifier.verify(token)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets one entry for each signature that is checked."""
    checked: list[int] = []
    decode: Callable[..., Any] = jwt.api_jws.decode

    def counted(*args: Any, **more: Any) -> Any:
        checked.append(1)
        return decode(*args, **more)

    monkeypatch.setattr(jwt.api_jws, "decode", counted)
    return checked


def test_what_is_cheap_is_checked_before_the_signature(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = counting(monkeypatch)
    world.why(world.token(aud="other"))
    world.why(world.token(exp=1))
    world.why(world.token(header={"kid": "new"}))
    assert not checked
    token = world.token()
    for _ in range(3):
        world.verifier.verify(token)
    assert len(checked) == 1, "a good one is remembered"
    world.clock.advance(s=300 + TOKEN_LEEWAY_S)
    assert "expired" in world.why(token)
    world.why(token)


def test_no_more_tokens_are_remembered_than_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "TOKENS_REMEMBERED_MAX", 3)
    for number in range(10):
        world.verifier.verify(world.token("ed", sub=f"s{number}"))
    assert len(world.verifier._good) == 3
    assert TOKENS_REMEMBERED_MAX == 4_096


def test_a_replaced_file_counts_at_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    token = world.token("ed")
    taken, stays = world.verifier.verify(token), world.verifier.verify(world.token("rsa"))
    assert not world.verifier.refresh()
    world.file.write_text("{")
    assert not world.verifier.refresh()
    assert "stay as they were" in caplog.text
    assert world.verifier.has_key_of(world.verifier.verify(token))
    written(world.file, document_of("rsa", "RS256", RSA_KEY))
    assert world.verifier.refresh()
    assert "not known here" in world.why(token)
    world.verifier.verify(world.token("rsa"))
    assert not world.verifier.has_key_of(taken), "what goes on with it has to end"
    assert world.verifier.has_key_of(stays)
    renewed = rsa.generate_private_key(65_537, 2_048)
    written(world.file, document_of("rsa", "RS256", renewed, use="sig"))
    assert world.verifier.refresh()
    assert not world.verifier.has_key_of(stays), "another key of the same id"


def unknown_kinds() -> dict[str, dict[str, Any]]:
    """Keys that stand beside good ones in issuers' documents, and that nothing is checked with."""
    return {
        "kind of the future": {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA", "kid": "x"},
        "curve": {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "x"},
        "exchange of keys": {"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "x"},
        "way of signing": document_of("x", "RS256", RSA_KEY, alg="HS256"),
        "small": document_of("x", "RS256", rsa.generate_private_key(65_537, 1_024)),
        "broken": {"kty": "RSA", "n": "!!", "e": "AQAB", "kid": "x"},
        "no kid": {k: v for k, v in document_of("x", "RS256", RSA_KEY).items() if k != "kid"},
    }


@pytest.mark.parametrize("name", unknown_kinds())
def test_a_key_of_an_unknown_kind_is_passed_over(
    world: World, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    written(world.file, unknown_kinds()[name], document_of("rsa", "RS256", RSA_KEY))
    assert world.verifier.refresh()
    assert "passed over" in caplog.text
    world.verifier.verify(world.token("rsa"))
    assert "not known here" in world.why(world.token("rsa", header={"kid": "x"}))


def test_a_token_for_longer_than_a_day_is_refused(world: World) -> None:
    now_s, longest_s = world.clock.now_ms() / 1_000, SETTINGS.lifetime_s_max
    world.verifier.verify(world.token(exp=now_s + longest_s))
    world.verifier.verify(world.token(exp=now_s + longest_s, iat=None))
    words = world.why(world.token(exp=now_s + longest_s + 1))
    assert "oidc_lifetime_max" in words
    assert "oidc_lifetime_max" in world.why(world.token(exp=now_s + longest_s + 1, iat=None))
    began_s = now_s - longest_s
    assert "oidc_lifetime_max" in world.why(world.token(exp=now_s + 60, iat=began_s)), "as issued"
    settings = SETTINGS._replace(lifetime_s_max=0)
    any_length = TokenVerifier(settings, world.file, world.clock.now_ms)
    any_length.verify(world.token(exp=now_s + 40 * longest_s))


def bad_documents() -> dict[str, list[dict[str, Any]]]:
    small = rsa.generate_private_key(65_537, 1_024)
    private = get_default_algorithms()["ES256"].to_jwk(EC_KEY, as_dict=True)
    return {
        "no keys": [],
        "symmetric": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}],
        "private": [{**private, "kid": "a"}],
        "small": [document_of("a", "RS256", small)],
        "no kid": [{k: v for k, v in document_of("a", "RS256", RSA_KEY).items() if k != "kid"}],
        "other algorithm": [document_of("a", "RS256", RSA_KEY, alg="HS256")],
    }


@pytest.mark.parametrize("name", bad_documents())
def test_files_without_good_public_keys_are_refused(tmp_path: Path, name: str) -> None:
    file = written(tmp_path / "jwks.json", *bad_documents()[name])
    with pytest.raises(UnusableTokenKeys, match="oidc_jwks_file") as caught:
        TokenVerifier(SETTINGS, file, FakeClock().now_ms)
    assert "c2VjcmV0" not in str(caught.value)
    with pytest.raises(UnusableTokenKeys, match="No such file"):
        TokenVerifier(SETTINGS, tmp_path / "none", FakeClock().now_ms)
