"""What two nodes say to each other before the first request on a connection of the cluster port.

    asks     curlew-cluster 1 <number>
    answers  <number> <proof>            or  refused <reason>
    asks     <proof>

Each line ends with a newline; proofs are `ClusterSecret`'s. Then HTTP/1.1 begins. Pure.
"""

from typing import Final

from app.runtime.secure.cluster_secret import ClusterSecret, new_number

VERSION: Final = "1"
LINE_BYTES_MAX: Final = 512
SECONDS: Final = 5.0
"""For all of it."""
_GREETING: Final = "curlew-cluster"
OTHER_SECRET: Final = "another cluster secret"  # noqa: S105  # a sentence


class Refused(Exception):
    """The other side is not a node of this cluster, or does not take this one for such; why."""


class Asking:
    """The side that connects."""

    def __init__(self, secret: ClusterSecret) -> None:
        self._secret = secret
        self._number = new_number()

    def greeting(self) -> bytes:
        """The first line."""
        return f"{_GREETING} {VERSION} {self._number}\n".encode()

    def proof(self, line: bytes) -> bytes:
        """The answer to the other side's line. Raises `Refused`."""
        first, _, rest = line.decode("latin-1").strip().partition(" ")
        if first == "refused":
            raise Refused(f"it refuses this node: {rest}")
        if not self._secret.is_proof(rest, "answers", self._number, first):
            raise Refused(f"it has {OTHER_SECRET}, or is no node of Curlew")
        return f"{self._secret.proof('asks', self._number, first)}\n".encode()


class Answering:
    """The side that listens."""

    def __init__(self, secret: ClusterSecret) -> None:
        self._secret = secret
        self._number = new_number()
        self._asked = ""

    def answer(self, line: bytes) -> bytes:
        """The answer to the greeting. Raises `Refused` with what to say."""
        words = line.decode("latin-1").split()
        if len(words) != 3 or words[0] != _GREETING:
            raise Refused("this is the cluster port, for nodes of the cluster only")
        if words[1] != VERSION:
            raise Refused(f"this node speaks version {VERSION} of the cluster port")
        self._asked = words[2]
        proof = self._secret.proof("answers", self._asked, self._number)
        return f"{self._number} {proof}\n".encode()

    def check(self, line: bytes) -> None:
        """Raise `Refused` unless it is the other side's proof."""
        given = line.decode("latin-1").strip()
        if not self._secret.is_proof(given, "asks", self._asked, self._number):
            raise Refused(OTHER_SECRET)
