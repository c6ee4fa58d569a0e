"""Counting the entries of large JSON requests before anything is made of them.

A request of 32 MiB may have ten million entries of three bytes, and as objects they would take a
gigabyte before their number is looked at. Here they are passed over, and reading ends at the first
one too many. Requests with few commas cannot have too many entries and are not counted. Any thread:
each has a count of its own.
"""

import threading
from typing import Final

import msgspec
from msgspec import Struct

from app.domain.errors import BatchTooLarge

_MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _OneTooMany(ValueError):
    """There are more entries than are taken."""


class _Count(threading.local):
    """How many more entries there may be in the request that a thread counts."""

    left = 0

    def take(self) -> None:
        """There is another entry."""
        self.left -= 1
        if self.left < 0:
            raise _OneTooMany


_COUNT: Final = _Count()


class _Object(Struct, gc=False):
    """An entry that is an object: its members are passed over."""

    def __post_init__(self) -> None:
        _COUNT.take()


class _Value:
    """An entry of any kind, which is dropped at once."""


_VALUE: Final = _Value()


class _Objects(Struct):
    messages: list[_Object] = []


class _Values(Struct):
    messages: list[_Value] = []


class _SettledObjects(Struct):
    acks: list[_Value] = []
    nacks: list[_Object] = []
    extends: list[_Object] = []
    dead_letters: list[_Object] = []
    releases: list[_Value] = []
    sends: list[_Object] = []


class _SettledValues(Struct):
    acks: list[_Value] = []
    nacks: list[_Value] = []
    extends: list[_Value] = []
    dead_letters: list[_Value] = []
    releases: list[_Value] = []
    sends: list[_Value] = []


def _drop(_type: type, _value: object) -> _Value:
    _COUNT.take()
    return _VALUE


def _decoders(*kinds: object) -> tuple[msgspec.json.Decoder[object], ...]:
    return tuple([msgspec.json.Decoder(kind, dec_hook=_drop) for kind in kinds])


_BATCH: Final = _decoders(_Objects, _Values)
_EVENTS: Final = _decoders(list[_Object], list[_Value])
_SETTLED: Final = _decoders(_SettledObjects, _SettledValues)


_ENTRY_BYTES_MIN: Final = 2
"""Of an entry with its comma, in bytes."""


def check_batch_count(body: bytes, count_max: int) -> None:
    """Raise `BatchTooLarge` when `messages` of a JSON batch has more than `count_max` entries."""
    _check(body, count_max, _BATCH)


def check_events_count(body: bytes, count_max: int) -> None:
    """Raise `BatchTooLarge` for an array of more than `count_max` CloudEvents."""
    _check(body, count_max, _EVENTS)


def check_settled_count(body: bytes, count_max: int) -> None:
    """Raise `BatchTooLarge` for more than `count_max` entries in all lists of a settle."""
    _check(body, count_max, _SETTLED)


def _check(body: bytes, count_max: int, decoders: tuple[msgspec.json.Decoder[object], ...]) -> None:
    """Count with the first decoder, which takes objects only, else with the next one.

    What is malformed is left to the decoder proper, which says what is wrong.
    """
    if len(body) < _ENTRY_BYTES_MIN * count_max or body.count(b",") < count_max:
        return
    for decoder in decoders:
        _COUNT.left = count_max
        try:
            decoder.decode(body)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, _OneTooMany):
                raise too_many(count_max) from None
            continue  # an entry is no object
        except _MALFORMED:
            pass
        return


def too_many(count_max: int) -> BatchTooLarge:
    """The refusal."""
    return BatchTooLarge(
        f"the batch has more than {count_max} messages", fields={"limit_messages": count_max}
    )
