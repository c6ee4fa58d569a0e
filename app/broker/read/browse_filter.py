"""Which messages a browse wants: conditions of the request, ready to be asked. Pure."""

from dataclasses import dataclass
from typing import Final

from app.broker.filters.filters import parse_filter
from app.domain.errors import InvalidRequest
from app.domain.message import (
    PROPERTY_KEYS,
    PROPERTY_TAG,
    PROPERTY_UNIQUE_KEY,
    StoredMessage,
    java_hash,
)
from app.store.formats.record.compression import SYSTEM_FLAG_COMPRESSED
from app.store.formats.record.record import stored_properties

_TIME_MIN: Final = 0
_TIME_MAX: Final = 2**63 - 1
_STORE_TIME: Final = slice(56, 64)
_SYSTEM_FLAG_LOW: Final = 39
"""The last byte of the system flag."""


@dataclass(frozen=True, slots=True)
class BrowseConditions:
    """All that are given must hold."""

    from_ms: int | None = None
    """Stored at this time or later."""
    until_ms: int | None = None
    """Stored before this time."""
    key: str | None = None
    """One of the message's keys, or the id that its producer gave."""
    unique_id: str | None = None
    """The id that its producer gave."""
    tag: str | None = None
    filter: str | None = None
    property: tuple[str, str] | None = None
    """Name and value of one of the message's own properties."""
    text: str | None = None
    """Part of the body, as UTF-8; capitals count."""


class BrowseFilter:
    """Conditions, parsed. Raises `IllegalFilter` and `InvalidRequest` when it is made."""

    def __init__(self, conditions: BrowseConditions) -> None:
        self.key = conditions.key if conditions.unique_id is None else conditions.unique_id
        """By which the index finds them."""
        self._unique_id = conditions.unique_id
        self._key = conditions.key
        self.from_ms = _TIME_MIN if conditions.from_ms is None else conditions.from_ms
        self.until_ms = _TIME_MAX if conditions.until_ms is None else conditions.until_ms
        if self.from_ms >= self.until_ms:
            raise InvalidRequest(
                f"from_ms is {self.from_ms} and until_ms {self.until_ms}: nothing is between",
                hint="from_ms is included, until_ms is not",
            )
        self._tag = conditions.tag
        self._property = conditions.property
        self._filter = parse_filter(conditions.filter)
        self._needle = conditions.text.encode() if conditions.text else b""
        hashes = None if self._filter is None else self._filter.tag_hashes
        if self._tag is not None:
            own = frozenset({java_hash(self._tag)})
            hashes = own if hashes is None else own & hashes
        self.tag_hashes = hashes
        """Only messages with one of these tag hashes can be chosen; None: any can."""

    @property
    def is_by_tag_only(self) -> bool:
        """Whether nearly everything with such a hash is chosen."""
        return (
            (self._filter is None or self._filter.is_by_tag_only)
            and self.key is None
            and self._property is None
            and not self._needle
        )

    @staticmethod
    def is_open_end(time_ms: int) -> bool:
        return time_ms in (_TIME_MIN, _TIME_MAX)

    def takes_record(self, record: memoryview) -> bool:
        """Whether the record is chosen, its body aside."""
        if not self.from_ms <= int.from_bytes(record[_STORE_TIME]) < self.until_ms:
            return False
        if self._needle and not _may_hold(record, self._needle):
            return False
        wanted = self._filter
        if wanted is None and self._tag is None and self._property is None and self.key is None:
            return True
        properties = stored_properties(record)
        if self._tag is not None and properties.get(PROPERTY_TAG) != self._tag:
            return False
        if self._property is not None:
            name, value = self._property
            if properties.get(name) != value:
                return False
        if self._key is not None and not _has_key(properties, self._key):
            return False
        if self._unique_id is not None and properties.get(PROPERTY_UNIQUE_KEY) != self._unique_id:
            return False
        return wanted is None or wanted.matches(properties)

    def takes_message(self, message: StoredMessage) -> bool:
        """Whether a message whose record is chosen has the text, and the producer's id for its own:
        an id of ours may stand in its place."""
        if self._unique_id is not None and message.unique_id != self._unique_id:
            return False
        return self._needle in message.body


def _may_hold(record: memoryview, needle: bytes) -> bool:
    """False when the body certainly lacks the text; spares decoding most records of a search."""
    is_packed = record[_SYSTEM_FLAG_LOW] & SYSTEM_FLAG_COMPRESSED
    return bool(is_packed) or needle in bytes(record)


def _has_key(properties: dict[str, str], key: str) -> bool:
    if key in properties.get(PROPERTY_KEYS, "").split(" "):
        return True
    return properties.get(PROPERTY_UNIQUE_KEY) == key
