"""`curlew send`."""

import json as jsonlib
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from curlew_client.command.messages.inputs import json_messages, lines, opened, rest_of, stdin
from curlew_client.command.messages.outgoing import send_many, send_one
from curlew_client.command.output import is_terminal, print_json, print_line, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Service, Where
from curlew_client.command.words import NotSo, moment_ms, pairs_of
from curlew_client.producing.messages import Message
from curlew_client.results import SendResult

app = App("send", "Send messages: from the command line, files or stdin.")

_SMALL: int = 1024 * 1024
"""A body up to this is no reason to ask the node how much it takes."""


class Given(NamedTuple):
    """What a message may have beside its body."""

    tag: Annotated[str | None, Parameter(help="One label, which consumers filter by.")] = None
    key: Annotated[
        tuple[str, ...],
        Parameter(help="A value to find the message by; again for more."),
    ] = ()
    sharding_key: Annotated[
        str | None, Parameter(help="Messages of one key stay in order, in one queue.")
    ] = None
    queue: Annotated[int | None, Parameter(help="This queue.")] = None
    property: Annotated[
        tuple[str, ...],
        Parameter(name=("--property", "-p"), help="name=value; again for more."),
    ] = ()
    content_type: Annotated[str | None, Parameter(help="What the body is.")] = None
    delay: Annotated[str | None, Parameter(help="Deliver after so long, such as 30m.")] = None
    at: Annotated[str | None, Parameter(help="Deliver at this time.")] = None
    unique_id: Annotated[str | None, Parameter(help="An id of yours.")] = None

    def options(self) -> dict[str, Any]:
        """As `Message` takes them."""
        return {
            "tag": self.tag,
            "keys": self.key,
            "sharding_key": self.sharding_key,
            "queue_id": self.queue,
            "properties": pairs_of("--property", self.property) or None,
            "content_type": self.content_type,
            "delay": self.delay,
            "deliver_at_ms": None if self.at is None else moment_ms("--at", self.at, _now_ms),
            "unique_id": self.unique_id,
        }


@app.default
def send(
    topic: str,
    /,
    *bodies: str,
    file: Annotated[tuple[Path, ...], Parameter(name=("--file", "-f"))] = (),
    lines: bool = False,
    ndjson: bool = False,
    rate: float | None = None,
    keep_queues: bool = False,
    given: Given = Given(),
    where: Where = Where(),
) -> None:
    """Send messages: from the command line, files or stdin.

    `curlew send orders '{"id": 17}' --tag created` sends one; without BODIES and files stdin is one
    message, byte by byte. Each message is stored once, however often its request is repeated.

    Parameters
    ----------
    bodies
        Each is a message, as UTF-8.
    file
        Each file is a message, or with --lines and --ndjson many; - is stdin.
    lines
        Each line is a message.
    ndjson
        Each line is a message as JSON: {"text": "…", "tag": "…", "keys": ["…"], …}, as `pull`,
        `browse` and `export` print it.
    rate
        At most so many messages a second.
    keep_queues
        With --ndjson: messages that were stored once go to the queue that they came from.
    """
    if lines and ndjson:
        raise NotSo("give --lines or --ndjson, not both")
    if bodies and (file or lines or ndjson):
        raise NotSo("give bodies, or files and stdin, not both")
    if rate is not None and rate <= 0:
        raise NotSo(f"--rate is {rate}; it is more than 0")
    if ndjson and given != Given():
        raise NotSo("with --ndjson each line says its own tag, keys and so on; leave the rest out")
    options = given.options()
    service = Service(where)
    if lines or ndjson:
        paths = file or (Path("-"),)
        found = _many(service, paths, options, ndjson=ndjson, keep_queues=keep_queues)
        _send_many(service, topic, found, rate, as_json=where.json)
        return
    for number, message in enumerate(_each(service, bodies, file, options)):
        if number and rate is not None:
            time.sleep(1 / rate)
        _say(send_one(service, topic, message), as_json=where.json)


def _each(
    service: Service, bodies: tuple[str, ...], files: tuple[Path, ...], options: dict[str, Any]
) -> Iterator[Message]:
    for text in bodies:
        yield Message(text.encode("utf-8", "surrogateescape"), **options)
    if bodies:
        return
    for path in files or (Path("-"),):
        with closing(opened(path) if files else stdin()) as file:
            name = "stdin" if str(path) == "-" else str(path)
            body = file.read(_SMALL)
            if len(body) == _SMALL:
                most = int(service.get("/v1/limits")["body_bytes_max"])
                body = rest_of(file, name, body, most)
            yield Message(body, **options)


def _many(
    service: Service,
    files: tuple[Path, ...],
    options: dict[str, Any],
    *,
    ndjson: bool,
    keep_queues: bool,
) -> Iterator[Message]:
    most = 0 if ndjson else int(service.get("/v1/limits")["body_bytes_max"])
    for path in files:
        name = "stdin" if str(path) == "-" else str(path)
        with closing(opened(path)) as file:
            if ndjson:
                yield from json_messages(file, name, keep_queues=keep_queues)
            else:
                yield from (Message(line, **options) for _, line in lines(file, name, most))


def _send_many(
    service: Service,
    topic: str,
    messages: Iterator[Message],
    rate: float | None,
    *,
    as_json: bool,
) -> None:
    began_s = time.monotonic()
    count = send_many(service, topic, messages, rate=rate)
    seconds = time.monotonic() - began_s
    if as_json:
        print_json({"topic": topic, "sent": count, "seconds": round(seconds, 3)})
    else:
        say(f"sent {count} messages to {topic} in {seconds:.1f} s")


def _say(result: SendResult, *, as_json: bool) -> None:
    if as_json or not is_terminal():
        names = (
            *("topic", "message_id", "queue_id", "queue_offset", "store_time_ms"),
            *("is_duplicate", "is_safe", "deliver_time_ms", "recall_handle", "unique_id"),
        )
        shown = {name: value for name in names if (value := getattr(result, name)) is not None}
        print_line(jsonlib.dumps(shown) if as_json else str(result.message_id))
        return
    if result.deliver_time_ms is not None:
        from curlew_client.command.words import time_text

        print_line(f"{result.message_id} is delivered at {time_text(result.deliver_time_ms)}")
        return
    place = f"queue {result.queue_id} at offset {result.queue_offset}"
    print_line(f"{result.message_id} is in {result.topic}, {place}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
