"""What an operator may set about the broker. Frozen; made by `app.config`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Defaults are those of `curlew serve`."""

    auto_create_topics: bool = False
    """A first send makes the topic (RocketMQ's TBW102). On in `curlew dev` only."""

    auto_create_groups: bool = True
    """A receive, stream, commit or heartbeat makes the group that it names."""

    leases_per_principal_max: int = 0
    """Messages that a principal may hold, over all groups. 0: any."""

    offset_flush_seconds: float = 1.0
    """How often committed offsets go to SQL. A crash repeats at most that much work."""

    last_write_seconds: float = 3.0
    """How long stopping waits for the database, twice at most (shutdown has 10 s)."""

    lease_check_seconds: float = 0.1
    """How often parked receives look for expired leases. Bounds the lateness of a redelivery."""

    delay_check_seconds: float = 0.02
    """How often delayed messages are looked at. Bounds their lateness."""
    snapshot_check_seconds: float = 1.0
    """How often journals look whether a snapshot is due."""

    transaction_check_seconds: float = 0.1
    """How often transactions are looked at whose producers must be asked."""

    member_check_seconds: float = 1.0
    """How often silent members are looked for, and changes that other nodes made to groups."""

    trace_write_seconds: float = 0.5
    """How often notes about messages are written. A kill loses that much of them."""

    schedule_check_seconds: float = 1.0
    """How often schedules are looked at, in the database."""

    reader_threads: int = 2
    """Threads for reads that must wait for the disk; one hop per request."""

    replay_window_seconds: float = 60.0
    """How long a repeated `attempt_id` returns the same messages, unless their leases end first."""

    def __post_init__(self) -> None:
        assert self.offset_flush_seconds > 0
        assert self.lease_check_seconds > 0
        assert self.delay_check_seconds > 0
        assert self.schedule_check_seconds > 0
        assert self.snapshot_check_seconds > 0
        assert self.transaction_check_seconds > 0
        assert self.member_check_seconds > 0
        assert self.trace_write_seconds > 0
        assert self.reader_threads > 0
