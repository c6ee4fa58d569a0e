"""What a policy permits, and what it permits it on. Pure nouns, in RocketMQ's words."""

from enum import StrEnum
from typing import NamedTuple

from typing_extensions import override


class Action(StrEnum):
    """What a permission allows, in the words of RocketMQ's ACL 2.0; ADMIN is for the cluster."""

    PUB = "PUB"
    SUB = "SUB"
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    GET = "GET"
    LIST = "LIST"
    ADMIN = "ADMIN"


class Kind(StrEnum):
    """What a name names. A producer is a producer id or a producer group."""

    TOPIC = "topic"
    GROUP = "group"
    PRODUCER = "producer"
    CLUSTER = "cluster"


class Target(NamedTuple):
    """What an action is done to."""

    kind: Kind
    name: str
    """Empty for the cluster, which there is one of."""
    namespace: str = ""

    @override
    def __str__(self) -> str:
        """As problems show it: `topic:orders`, `cluster`."""
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)


CLUSTER = Target(Kind.CLUSTER, "")
"""The nodes, their figures and settings, and who may use them."""
