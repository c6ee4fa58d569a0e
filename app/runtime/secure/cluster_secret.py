"""The secret that the nodes of a cluster share, and how two of them prove that they have it.

It is never sent: each side says a random number, and answers with a keyed digest of both numbers
and of its part. Whoever has the secret is every principal.
"""

from hmac import compare_digest, digest
from pathlib import Path
from secrets import token_hex
from typing import Final, Literal, Self

from app.runtime.secure.secret_files import UnusableSecretFile, read_secret

SECRET_BYTES_MIN: Final = 32
Side = Literal["asks", "answers"]


class ClusterSecret:
    """Immutable."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, path: Path | None) -> Self | None:
        """The secret in `cluster_secret_file`; None without one. Raises `UnusableSecretFile`."""
        if path is None:
            return None
        key = read_secret(path, "cluster_secret_file").strip()
        if len(key) < SECRET_BYTES_MIN:
            raise UnusableSecretFile(
                f"cluster_secret_file = {path} has {len(key)} bytes, and needs {SECRET_BYTES_MIN}:"
                f" openssl rand -hex 32 > {path}"
            )
        return cls(key)

    def proof(self, side: Side, asked: str, answered: str) -> str:
        """What `side` says, given the random numbers of both."""
        return digest(self._key, f"curlew {side} {asked} {answered}".encode(), "sha256").hex()

    def is_proof(self, given: str, side: Side, asked: str, answered: str) -> bool:
        """Whether it is that, compared in constant time."""
        return compare_digest(given.encode(), self.proof(side, asked, answered).encode())


def new_number() -> str:
    """A random number for one proof."""
    return token_hex(16)
