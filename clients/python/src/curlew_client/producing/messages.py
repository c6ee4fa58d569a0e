"""A message on its way out, checked; and the requests that carry it. Pure."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from urllib.parse import quote

from curlew_client.wire import frames
from curlew_client.wire.bodies import Body, encode_body, packed
from curlew_client.wire.durations import Duration, milliseconds_of
from curlew_client.wire.http1 import header_value, path_part

if TYPE_CHECKING:
    from curlew_client.hooks import Sending

HEADERS_BYTES_MAX: Final = 8 * 1024
"""More metadata than this goes as an envelope: nodes take 16 KiB of headers in all."""
ENVELOPE: Final = "application/vnd.curlew+json"
BESIDE_BYTES: Final = 64
"""What a message is reckoned to have beside its body and properties."""
_INT32: Final = range(-(2**31), 2**31)
_LEVEL: Final = re.compile(r"level:(?:[1-9]|1[0-8])")
_SHOWN_AS_THEY_ARE: Final = (
    *("tag", "sharding_key", "queue_id", "properties", "deliver_at_ms", "delay", "unique_id"),
)


class Message:
    """A message to be sent: a body, and what belongs to it.

    `body`: bytes, str (sent as UTF-8) or dict (sent as JSON, and its content type says so).
    `tag`: one label that consumers filter by. `keys`: values to find it by. `sharding_key`:
    messages of the same one go to the same queue, in order. `queue_id`: this queue. `properties`:
    texts by name. `delay` (a duration, or RocketMQ's levels, `level:1` to `level:18`) or
    `deliver_at_ms` (epoch milliseconds): when it becomes visible. `unique_id`: an id of yours, to
    find it by. `flag`: a number that nobody looks at.
    """

    __slots__ = (
        *("body", "content_type", "delay", "deliver_at_ms", "flag", "keys"),
        *("properties", "queue_id", "sharding_key", "tag", "unique_id"),
    )

    def __init__(
        self,
        body: Body,
        *,
        tag: str | None = None,
        keys: Iterable[str] = (),
        sharding_key: str | None = None,
        queue_id: int | None = None,
        properties: Mapping[str, str] | None = None,
        content_type: str | None = None,
        delay: Duration | None = None,
        deliver_at_ms: int | None = None,
        unique_id: str | None = None,
        flag: int = 0,
    ) -> None:
        self.body, implied = encode_body(body)
        # what is not given is not looked at: a message is made in a microsecond
        self.content_type = implied if content_type is None else _text("content_type", content_type)
        self.tag = None if tag is None else _text("tag", tag)
        self.keys = _keys_of(keys) if keys else ()
        self.sharding_key = None if sharding_key is None else _text("sharding_key", sharding_key)
        self.queue_id = None if queue_id is None else _count("queue_id", queue_id)
        self.properties = _properties_of(properties) if properties else None
        self.deliver_at_ms = (
            None if deliver_at_ms is None else _count("deliver_at_ms", deliver_at_ms)
        )
        self.delay = None if delay is None else _delay(delay)
        self.unique_id = None if unique_id is None else _unique(unique_id)
        self.flag = _flag(flag)
        if delay is not None and deliver_at_ms is not None:
            raise ValueError("give delay or deliver_at_ms, not both")

    @property
    def is_framed(self) -> bool:
        """Whether a batch frame can carry it: one queue, at once."""
        return self.sharding_key is None and self.delay is None and self.deliver_at_ms is None

    @property
    def size(self) -> int:
        """About its bytes, for bounds."""
        properties = self.properties
        if properties is None:
            return len(self.body) + BESIDE_BYTES
        more = sum(map(len, properties)) + sum(map(len, properties.values()))
        return len(self.body) + more + BESIDE_BYTES

    def record(self, maker: frames.RecordMaker) -> bytes:
        """The record of a frame."""
        if not (self.tag or self.keys or self.properties or self.content_type or self.unique_id):
            return maker.make(self.body, b"", self.flag)
        properties = frames.encode_properties(
            self.tag, self.keys, self.properties, self.content_type, self.unique_id
        )
        return maker.make(self.body, properties, self.flag)

    def envelope(self) -> dict[str, Any]:
        """The message as JSON, as a single send or an entry of a batch."""
        shown: dict[str, Any] = {}
        try:
            shown["text"] = self.body.decode()
        except UnicodeDecodeError:
            from base64 import b64encode

            shown["body_base64"] = b64encode(self.body).decode("ascii")
        for name in _SHOWN_AS_THEY_ARE:
            if (value := getattr(self, name)) is not None:
                shown[name] = value
        if self.content_type is not None:
            shown["content_type"] = self.content_type
        if self.flag:
            shown["flag"] = self.flag
        if self.keys:
            shown["keys"] = list(self.keys)
        return shown


Waiting = Message | bytes
"""A message of a batch that is not sent yet; bytes: a body that nothing belongs to."""


def waiting_of(body: Body) -> Waiting:
    """A message that is made of a body alone."""
    if type(body) is bytes:
        return body
    return body.encode() if type(body) is str else Message(body)


def as_message(waiting: Waiting) -> Message:
    """The same as a message."""
    return waiting if isinstance(waiting, Message) else Message(waiting)


def size_of(waiting: Waiting) -> int:
    """About its bytes, for bounds."""
    return len(waiting) + BESIDE_BYTES if isinstance(waiting, bytes) else waiting.size


def _are_bodies(messages: Sequence[Waiting]) -> TypeGuard[Sequence[bytes]]:
    return set(map(type, messages)) == {bytes}


class SendRequest:
    """The request of one message or of many: header lines and body, without what an attempt adds.

    `scope`: of its numbers.
    """

    __slots__ = (
        *("body", "count", "is_numbered", "lines", "may_choose", "scope", "sending"),
        *("sharding_key", "target", "topic"),
    )

    def __init__(
        self, topic: str, target: str, lines: str, body: bytes, scope: tuple[str, int], count: int
    ) -> None:
        self.topic = topic
        self.target = target
        self.lines = lines
        self.body = body
        self.scope = scope
        self.count = count
        self.is_numbered = True
        """Whether it may have numbers: not the first half of a transaction, nor what is one-way."""
        self.may_choose = False
        """Whether the client may name a queue in a header: nothing in it says where it goes."""
        self.sharding_key: str | None = None
        """Which all its messages go by; of a batch, the key of one, as all are of one shard."""
        self.sending: Sending | None = None
        """What hooks know about it; None: there are no hooks."""

    def also(self, lines: str) -> "SendRequest":
        """The same with more header lines, and without numbers."""
        self.lines += lines
        self.is_numbered = self.may_choose = False
        return self


ANY_QUEUE: Final = -1
_FRAMED: Final = f"content-type: {frames.CONTENT_TYPE}\r\n"


def send_request(topic: str, message: Message, compress_from: int | None) -> SendRequest:
    """The request of one message; a body of `compress_from` bytes or more is packed."""
    lines = _lines_of(message)
    body = message.body
    target = f"/v1/topics/{path_part(topic)}/messages"
    scope = topic, ANY_QUEUE if message.queue_id is None else message.queue_id
    is_free = len(lines) <= HEADERS_BYTES_MAX
    if not is_free:
        body = json.dumps(message.envelope(), ensure_ascii=False).encode()
        lines = f"content-type: {ENVELOPE}\r\n"
    elif message.content_type is not None:
        lines += f"content-type: {message.content_type}\r\n"
    if compress_from is not None and len(body) >= compress_from:
        body, encoding = packed(body)
        if encoding is not None:
            lines += f"content-encoding: {encoding}\r\n"
    request = SendRequest(topic, target, lines, body, scope, 1)
    request.sharding_key = message.sharding_key
    request.may_choose = is_free and message.queue_id is None and message.sharding_key is None
    return request


def reply_request(topic: str, message: Message, wait_ms: int) -> SendRequest:
    """The request of a message that waits for its reply; it has no number."""
    request = send_request(topic, message, None).also("")
    request.target += f":request?wait={wait_ms}ms"
    return request


def batch_request(
    topic: str, messages: Sequence[Waiting], queue_id: int | None, namespace: str | None = None
) -> SendRequest:
    """The request of many messages of one topic, to one queue unless they have sharding keys."""
    target = f"/v1/topics/{path_part(topic)}/messages:batch"
    lines = "" if queue_id is None else f"mq-queue-id: {queue_id}\r\n"
    scope = topic, ANY_QUEUE if queue_id is None else queue_id
    maker = frames.RecordMaker(topic if namespace is None else f"{namespace}%{topic}")
    if _are_bodies(messages):
        body = maker.frame_of_bodies(messages)
        request = SendRequest(topic, target, lines + _FRAMED, body, scope, len(messages))
        request.may_choose = queue_id is None
        return request
    full = [as_message(each) for each in messages]
    if all(message.is_framed for message in full):
        body = frames.encode_frame([message.record(maker) for message in full])
        lines += _FRAMED
    else:
        entries = [message.envelope() for message in full]
        body = json.dumps({"messages": entries}, ensure_ascii=False).encode()
        lines += "content-type: application/json\r\nprefer: handling=strict\r\n"
    request = SendRequest(topic, target, lines, body, scope, len(messages))
    request.sharding_key = full[0].sharding_key
    are_keyed = any(message.sharding_key is not None for message in full)
    request.may_choose = queue_id is None and not are_keyed
    return request


def check_name(what: str, name: object) -> str:
    """The name of a topic or a group: a text that is not empty; the rest is the node's to say."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is a str, not {type(name).__name__}")
    if not name:
        raise ValueError(f"{what} is empty")
    return name


def _lines_of(message: Message) -> str:
    lines = ""
    if message.tag is not None:
        lines = f"mq-tag: {header_value(message.tag)}\r\n"
    if message.keys:
        lines += f"mq-keys: {' '.join(map(header_value, message.keys))}\r\n"
    if message.sharding_key is not None:
        lines += f"mq-sharding-key: {header_value(message.sharding_key)}\r\n"
    if message.queue_id is not None:
        lines += f"mq-queue-id: {message.queue_id}\r\n"
    if message.delay is not None:
        lines += f"mq-delay: {message.delay}\r\n"
    if message.deliver_at_ms is not None:
        lines += f"mq-deliver-at: {message.deliver_at_ms}\r\n"
    if message.unique_id is not None:
        lines += f"mq-unique-id: {header_value(message.unique_id)}\r\n"
    if message.flag:
        lines += f"mq-flag: {message.flag}\r\n"
    if message.properties:
        text = json.dumps(message.properties, ensure_ascii=False, separators=(",", ":"))
        lines += f"mq-properties: {quote(text, safe='')}\r\n"
    return lines


def _delay(value: Duration | None) -> str | None:
    """As nodes take it."""
    if value is None:
        return None
    if isinstance(value, str) and value.startswith("level:"):
        if not _LEVEL.fullmatch(value):
            raise ValueError(f"delay is {value!r}; levels are level:1 to level:18")
        return value
    return f"{milliseconds_of('delay', value)}ms"


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} is empty; leave it out")
    if name == "content_type" and not (value.isascii() and value.isprintable()):
        raise ValueError(f"content_type is {value!r}; it has printable ASCII characters only")
    return value


def _count(name: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} is {value}; it begins at 0")
    return value


def _unique(value: object) -> str | None:
    found = _text("unique_id", value)
    if found is not None and not (found.isascii() and found.isprintable() and " " not in found):
        raise ValueError(f"unique_id is {found!r}; it has visible ASCII characters only")
    return found


def _flag(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"flag is an int, not {type(value).__name__}")
    if value not in _INT32:
        raise ValueError(f"flag is {value}; it has 32 bits, signed")
    return value


def _keys_of(keys: Iterable[object]) -> tuple[str, ...]:
    if isinstance(keys, str | bytes):
        raise TypeError(f"keys is a list of str, for instance [{keys!r}]")
    found = []
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"keys has a {type(key).__name__}; each of them is a str")
        if not key or " " in key:
            raise ValueError(f"keys has {key!r}; a key is not empty and has no space")
        found.append(key)
    return tuple(found)


def _properties_of(properties: object) -> dict[str, str]:
    if not isinstance(properties, Mapping):
        kind = type(properties).__name__
        raise TypeError(f"properties is a dict of str to str, not {kind}")
    found: dict[str, str] = {}
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"properties has {name!r}: {value!r}; names and values are str")
        found[name] = value
    return found
