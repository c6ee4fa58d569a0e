"""RocketMQ's JSON files below `config/`: topics, consumer offsets, delay offsets. Pure.

fastjson writes maps with whole numbers as keys without quotes (`{0:12,1:7}`), which is no JSON;
both spellings are read. What a file lacks is taken as empty: brokers of many versions wrote them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from app.domain.names import is_reserved_topic
from app.domain.settings import Permission

PERM_INHERIT: Final = 0x1

_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])(\s*)(-?\d+)(\s*):')

_PERM_READ: Final = 0x4
_PERM_WRITE: Final = 0x2
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"


class SettingsDamaged(ValueError):
    """A file is not what RocketMQ writes; the text says where."""


class RocketTopic(msgspec.Struct, rename="camel"):
    """One entry of topics.json; what we do not use is left out."""

    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 6
    attributes: dict[str, str] | None = None

    @property
    def queues(self) -> int:
        return max(self.read_queue_nums, self.write_queue_nums)

    @property
    def permission(self) -> Permission:
        """What `perm` says, and that nothing is written where no queue is for that."""
        can_write = bool(self.perm & _PERM_WRITE) and self.write_queue_nums > 0
        if self.perm & _PERM_READ:
            return Permission.READ_WRITE if can_write else Permission.READ
        return Permission.WRITE if can_write else Permission.NONE

    @property
    def write_queues(self) -> int | None:
        """Queues that take messages; None: all."""
        return self.write_queue_nums if 0 < self.write_queue_nums < self.queues else None

    @property
    def message_type(self) -> str:
        """`NORMAL`, `FIFO`, `DELAY` or `TRANSACTION`; RocketMQ 5 only."""
        found = self.attributes or {}
        return found.get("message.type") or found.get("+message.type") or "NORMAL"


class _Topics(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, RocketTopic] = {}


class _Offsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[str, int]] = {}


class _DelayOffsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class RocketOffset:
    """A consumer offset: the group has everything of the queue below it."""

    group: str
    topic: str
    queue_id: int
    offset: int


def read_topics(text: bytes) -> dict[str, RocketTopic]:
    """topics.json. Raises `SettingsDamaged`."""
    return _decode(text, _Topics).topic_config_table


def read_offsets(text: bytes) -> list[RocketOffset]:
    """consumerOffset.json, in its order. Raises `SettingsDamaged`."""
    found = []
    for name, offsets in _decode(text, _Offsets).offset_table.items():
        topic, at, group = name.partition("@")
        if at:
            found += [
                RocketOffset(group, topic, _number(queue_id), offset)
                for queue_id, offset in offsets.items()
            ]
    return found


def read_delay_offsets(text: bytes) -> Mapping[int, int]:
    """delayOffset.json: what is done of each delay level. Raises `SettingsDamaged`."""
    table = _decode(text, _DelayOffsets).offset_table
    return {_number(level): offset for level, offset in table.items()}


def is_system_topic(name: str) -> bool:
    """Whether RocketMQ keeps a topic for itself."""
    return is_reserved_topic(name) or name.endswith(REPLY_SUFFIX)


_Document = TypeVar("_Document", _Topics, _Offsets, _DelayOffsets)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise SettingsDamaged(f"{text!r} is not a number") from error


def _quote(match: re.Match[str]) -> str:
    return f'{match[1]}"{match[2]}"{match[3]}:' if match[2] is not None else match[0]


def _decode(text: bytes, document: type[_Document]) -> _Document:
    try:
        quoted = _TOKENS.sub(_quote, text.decode())
        return msgspec.json.decode(quoted, type=document)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SettingsDamaged(str(error)) from error
