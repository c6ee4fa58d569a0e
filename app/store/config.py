"""Configuration of a store: frozen, validated together, one comment per field."""

from dataclasses import dataclass

from app.domain.limits import MIB
from app.store.formats.record.record import END_OF_FILE_BYTES


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Sizes in bytes. What is recorded in the store's meta file wins over this at reopening."""

    segment_bytes: int = 256 * MIB
    """RocketMQ: 1 GiB. Smaller segments make retention finer and the scan after a crash shorter."""

    queue_file_units: int = 300_000
    """RocketMQ's number; a file has 6,000,000 bytes."""

    index_slots: int = 500_000
    """RocketMQ: 5,000,000. Ours keep a small store small; the file is sparse."""

    index_entries: int = 2_000_000
    """RocketMQ: 20,000,000. One of them is never used."""

    key_probes_max: int = 10_000
    """Index entries that one look-up by key follows at most."""

    store_time_from_clock: bool = False
    """Begin store times anew at the wall clock, though the newest message has a later one."""

    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x22\x06"
    """IPv4 address and port (8710) that RocketMQ's format keeps in every record."""

    log_cache_bytes: int | None = None
    """The newest bytes of the log that stay in memory; None: as the kernel decides. Of older ones
    that are read again and again up to as many stay as well."""

    coalesce_gap_bytes: int = 16 * 1024
    """Wanted records closer than this are read in one piece: a call costs as much as 16 KiB."""

    record_bytes_max: int = 4 * MIB + 64 * 1024
    """RocketMQ's bound: the largest body and 64 KiB."""

    def __post_init__(self) -> None:
        if self.segment_bytes < self.record_bytes_max + END_OF_FILE_BYTES:
            raise ValueError(
                f"segments of {self.segment_bytes} bytes cannot hold a record of "
                f"{self.record_bytes_max} bytes"
            )
