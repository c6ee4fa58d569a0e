"""Where the messages of a send come from: words, files, stdin as one body, lines, or JSON lines.

Reads as it goes: a stream without end is sent without end, and no line is larger than a node takes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from curlew_client.command.messages.shapes import message_of
from curlew_client.command.output import say
from curlew_client.command.words import NotSo
from curlew_client.producing.messages import Message

LINE_BYTES_MAX: Final = 48 * 1024 * 1024
"""A line of JSON: the largest body that a node can be set to take, in Base64, with what belongs."""


def stdin() -> IO[bytes]:
    """The bytes of stdin; who types is told how to end."""
    if sys.stdin.isatty():
        say("reading the message from the keyboard; Ctrl-D ends it")
    return sys.stdin.buffer


def rest_of(file: IO[bytes], name: str, begun: bytes, most: int) -> bytes:
    """One body, whose beginning was read before."""
    body = begun + file.read(max(most - len(begun), 0) + 1)
    if len(body) > most:
        raise NotSo(
            f"{name} has more than {most} bytes, and the node takes no larger message; "
            "--lines sends each line as a message, --ndjson each line of JSON"
        )
    return body


def lines(file: IO[bytes], name: str, most: int) -> Iterator[tuple[str, bytes]]:
    """Each line without its end, and where it is. An empty last line is none."""
    number = 0
    while line := file.readline(most + 2):
        number += 1
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > most:
            raise NotSo(f"line {number} of {name} has more than {most} bytes")
        yield f"line {number} of {name}", line


def json_messages(file: IO[bytes], name: str, *, keep_queues: bool) -> Iterator[Message]:
    """The messages of JSON lines; blank lines are passed over."""
    for where, line in lines(file, name, LINE_BYTES_MAX):
        if line.strip():
            yield message_of(line, where, keep_queues=keep_queues)


def opened(path: Path) -> IO[bytes]:
    """A file to read; `-` is stdin."""
    if str(path) == "-":
        return stdin()
    try:
        return path.open("rb")
    except OSError as error:
        raise NotSo(f"{path} cannot be read: {error.strerror}") from None
