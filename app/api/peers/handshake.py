"""What two nodes say to each other before the first request on a connection of the cluster port.

    asks     curlew-cluster 1 <number>
    answers  <number> <proof>            or  refused <reason>
    asks     <proof>

Each line ends with a newline; proofs are `ClusterSecret`'s. Then HTTP/1.1 begins. A replica of the
shard that has something to say to one here asks with another line, and its language begins then:

    asks     curlew-replica 1 <number> <session> <node>

Pure.
"""

from typing import Final
from urllib.parse import quote, unquote

from app.runtime.secure.cluster_secret import ClusterSecret, new_number

VERSION: Final = "1"
LINE_BYTES_MAX: Final = 512
SECONDS: Final = 5.0
"""For all of it."""
_GREETING: Final = "curlew-cluster"
_REPLICA: Final = "curlew-replica"
NO_REPLICAS: Final = "this node keeps no replica that others may follow"
OTHER_SECRET: Final = "another cluster secret"  # noqa: S105  # a sentence


class Refused(Exception):
    """The other side is not a node of this cluster, or does not take this one for such; why."""


class Asking:
    """The side that connects."""

    def __init__(self, secret: ClusterSecret, replica: tuple[str, int] | None = None) -> None:
        """`replica`: the name and the session of one; None: requests are to be carried."""
        self._secret = secret
        self._number = new_number()
        self._words = _GREETING, VERSION, self._number
        if replica is not None:
            node, session = replica
            self._words = _REPLICA, VERSION, f"{self._number} {session} {quote(node, safe='')}"

    def greeting(self) -> bytes:
        """The first line."""
        return f"{' '.join(self._words)}\n".encode()

    def proof(self, line: bytes) -> bytes:
        """The answer to the other side's line. Raises `Refused`."""
        first, _, rest = line.decode("latin-1").strip().partition(" ")
        if first == "refused":
            raise Refused(f"it refuses this node: {rest}")
        if not self._secret.is_proof(rest, "answers", self._words[2], first):
            raise Refused(f"it has {OTHER_SECRET}, or is no node of Curlew")
        return f"{self._secret.proof('asks', self._words[2], first)}\n".encode()


class Answering:
    """The side that listens."""

    def __init__(self, secret: ClusterSecret, *, takes_replicas: bool = False) -> None:
        self._secret = secret
        self._number = new_number()
        self._asked = ""
        self._takes_replicas = takes_replicas
        self.replica: tuple[str, int] | None = None
        """Name and session of the replica that asks; None: requests are to be carried."""

    def answer(self, line: bytes) -> bytes:
        """The answer to the greeting. Raises `Refused` with what to say."""
        words = line.decode("latin-1").split()
        if len(words) not in (3, 5) or words[0] != (_GREETING if len(words) == 3 else _REPLICA):
            raise Refused("this is the cluster port, for nodes of the cluster only")
        if words[1] != VERSION:
            raise Refused(f"this node speaks version {VERSION} of the cluster port")
        if len(words) == 5:
            self.replica = self._replica_of(words[3], words[4])
        self._asked = " ".join(words[2:])
        proof = self._secret.proof("answers", self._asked, self._number)
        return f"{self._number} {proof}\n".encode()

    def _replica_of(self, session: str, node: str) -> tuple[str, int]:
        if not self._takes_replicas:
            raise Refused(NO_REPLICAS)
        if not session.isdecimal() or not session.isascii() or len(session) > 18:
            raise Refused("the session of a replica is a number")
        return unquote(node), int(session)

    def check(self, line: bytes) -> None:
        """Raise `Refused` unless it is the other side's proof."""
        given = line.decode("latin-1").strip()
        if not self._secret.is_proof(given, "asks", self._asked, self._number):
            raise Refused(OTHER_SECRET)
