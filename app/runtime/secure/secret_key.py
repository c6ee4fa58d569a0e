"""The secret key of a cluster: one file for all nodes, not in the data directory. Never shown.

Whatever needs a secret derives one of its own from it by name, so that none tells anything of
another. Which key it is shows its fingerprint, which stands in SQL: a node that has another key
would make what the others cannot read or check.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Final, Self

from typing_extensions import override

from app.runtime.secure.secret_files import UnusableSecretFile, read_secret

SECRET_KEY_BYTES_MIN: Final = 32
_SETTING: Final = "secret_key_file"
_FINGERPRINT_BYTES: Final = 8


class SecretKey:
    """Made of what the file holds. Immutable."""

    __slots__ = ("_master", "fingerprint")

    def __init__(self, content: bytes) -> None:
        self._master = hashlib.sha256(content).digest()
        self.fingerprint = self.derive("fingerprint")[:_FINGERPRINT_BYTES].hex()
        """Tells keys apart and says nothing else of them: 16 hexadecimal digits."""

    @classmethod
    def of(cls, path: Path | None) -> Self | None:
        """None without a file. Raises `UnusableSecretFile`."""
        if path is None:
            return None
        if not path.exists():
            raise UnusableSecretFile(
                f"{_SETTING} = {path} is not there. Bring back the copy that you kept of it. A "
                f"cluster that never had one needs a new one: (umask 077; openssl rand -hex 32 > "
                f"{path}). When it is lost for good make a new one as well, and the next start "
                "says what is lost with it and how to go on"
            )
        content = read_secret(path, _SETTING).strip()
        if len(content) < SECRET_KEY_BYTES_MIN:
            raise UnusableSecretFile(
                f"{_SETTING} = {path} has {len(content)} bytes, and at least "
                f"{SECRET_KEY_BYTES_MIN} are needed; make one with: openssl rand -hex 32"
            )
        return cls(content)

    def derive(self, purpose: str) -> bytes:
        """The secret for one purpose: 32 bytes."""
        return hmac.digest(self._master, purpose.encode("ascii"), "sha256")

    @override
    def __repr__(self) -> str:
        return f"SecretKey({self.fingerprint})"
