"""Tokens that should not count at any node of a closed cluster, each of an administrator."""

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode

from tests.support.cluster.closed_cluster import SIGNS, ClosedCluster


def _hs256(cluster: ClosedCluster) -> str:
    """Signed with the public key as if that were a secret."""
    shown = SIGNS.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = base64url_encode(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "a"}).encode())
    body = base64url_encode(json.dumps(cluster.claims(roles="platform")).encode())
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = algorithm.sign(header + b"." + body, shown)
    return b".".join([header, body, base64url_encode(signature)]).decode()


def bad_tokens(cluster: ClosedCluster) -> dict[str, str]:
    """By what is wrong with them."""
    good, stranger = cluster.claims(roles="platform"), ec.generate_private_key(ec.SECP256R1())
    now_s = cluster.nodes[0].node.clock.now_ms() / 1_000

    def signed(key: Any = SIGNS, header: dict[str, Any] | None = None, **changed: Any) -> str:
        return jwt.encode({**good, **changed}, key, "ES256", header or {"kid": "a"})

    head, body, signature = signed().split(".")
    return {
        "unsigned": jwt.encode(good, "", "none", {"kid": "a"}),
        "a secret": _hs256(cluster),
        "another key": signed(stranger),
        "another kid": signed(stranger, {"kid": "b"}),
        "a path": signed(stranger, {"kid": "../../dev/null"}),
        "a key along": signed(stranger, {"kid": "a", "jwk": {"kty": "EC"}, "jku": "http://evil"}),
        "expired": signed(exp=now_s - 120),
        "not yet": signed(nbf=now_s + 600),
        "of a clock that is off": signed(iat=now_s + 600, exp=now_s + 900),
        "without an end": jwt.encode({**cluster.claims(exp=None)}, SIGNS, "ES256", {"kid": "a"}),
        "for another": signed(aud="other"),
        "of another": signed(iss="https://evil.example"),
        "without a signature": f"{head}.{body}.",
        "of two": f"{head}.{signed(sub='root').split('.')[1]}.{signature}",
    }
