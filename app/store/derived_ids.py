"""Ids of messages that the store derives from their places, made when asked for. Pure."""

from collections.abc import Sequence

from typing_extensions import override

from app.store.formats.record.message_id import encode_message_id
from app.store.formats.record.record_block import Ints


class DerivedIds(Sequence[str]):
    """Ids of a frame's messages, made when asked for."""

    def __init__(self, store_id: bytes, store_time_ms: int, offsets: Ints) -> None:
        self._store_id = store_id
        self._store_time_ms = store_time_ms
        self._offsets = offsets

    @override
    def __len__(self) -> int:
        return len(self._offsets)

    @override
    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no slices
        return encode_message_id(self._store_id, self._store_time_ms, int(self._offsets[index]))
