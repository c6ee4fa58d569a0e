"""How to reach the metadata database. Read once by `config`, handed over by the node."""

from dataclasses import dataclass, field

from app.domain.positions import FlushMode


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Frozen settings of this package."""

    url: str = field(repr=False)
    """`sqlite:///path` or `postgresql://user:password@host:port/name`. Not in `repr`: it may hold
    a password."""

    default_flush: FlushMode = FlushMode.SYNC
    """Flush mode of topics that are made by their first send."""

    topics_owned_max: int = 0
    """Of each principal; 0: any number."""

    groups_owned_max: int = 0
    """As `topics_owned_max`."""

    schedules_owned_max: int = 0
    """As `topics_owned_max`."""

    lock_wait_ms: int = 5_000
    """Longest wait for another writer (SQLite's busy timeout, PostgreSQL's lock timeout). Well over
    the few milliseconds that our transactions take, well under a client's patience."""

    statement_ms_max: int = 15_000
    """PostgreSQL stops a statement after this; loading all offsets at start is the longest one."""

    idle_ms_max: int = 10_000
    """PostgreSQL undoes a transaction in which nothing is asked for so long: a node that freezes
    within one would keep the locks that all others need. Far over a long turn of the event loop."""

    connect_s_max: int = 5
    """Longest wait for a connection, from PostgreSQL or from the pool."""

    connections_max: int = 5
    """Size of the pool. Metadata traffic is light; PostgreSQL shares its connections by nodes."""
