"""Configuration of a store: frozen, validated together, one comment per field."""

from dataclasses import dataclass

from app.domain.limits import MIB
from app.store.formats.record.record import END_OF_FILE_BYTES


@dataclass(frozen=True, slots=True)
class FastPaths:
    """Which fast paths a store takes; docs/performance/fast-paths.md says what each one skips.

    Tests turn off each one, and all: the bytes that are stored and served are the same. This is no
    setting of a node.
    """

    verified_blocks: bool = True
    """A block of records that was verified is compared with two checksums when it is read again.
    `frame_checksums`, `zero_copy` and `known_reads` do nothing without it."""

    frame_checksums: bool = True
    """The blocks of a frame are known once it is confirmed; False: once they were read."""

    zero_copy: bool = True
    """Verified blocks are sent from the segment files without being read."""

    array_reads: bool = True
    """A read of `VECTOR_RECORDS_MIN` messages or more handles units and records as arrays."""

    record_views: bool = True
    """Such a read makes a view of each record only when one is asked for."""

    known_reads: bool = True
    """Verified blocks of several queues are read for one answer together."""

    crc_batch: bool = True
    """The checksums of a frame's records that have the same form are derived from the first's."""

    single_append: bool = True
    """A message that is sent alone is encoded without the lists that a batch needs."""


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

    fast_paths: FastPaths = FastPaths()
    """For tests."""

    def __post_init__(self) -> None:
        if self.segment_bytes < self.record_bytes_max + END_OF_FILE_BYTES:
            raise ValueError(
                f"segments of {self.segment_bytes} bytes cannot hold a record of "
                f"{self.record_bytes_max} bytes"
            )
