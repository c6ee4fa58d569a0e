"""`curlew export` and `curlew import`: a topic as JSON lines, and back."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from curlew_client.command.messages.inputs import json_messages, opened
from curlew_client.command.messages.outgoing import send_many
from curlew_client.command.messages.pulling import read
from curlew_client.command.messages.shapes import json_line
from curlew_client.command.output import print_json, say
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Service, Where
from curlew_client.command.words import NotSo, bytes_text

app = App("export", "Write the messages of a topic as JSON lines.")
importer = App("import", "Send messages from JSON lines.")


@app.default
def export(
    topic: str,
    /,
    *,
    to: Path | None = None,
    queue: int | None = None,
    filter: str | None = None,
    where: Where = Where(),
) -> None:
    """Write the messages of a topic as JSON lines, up to where its queues end now.

    Parameters
    ----------
    to
        Into this new file; else to stdout.
    queue
        This queue only; else all, one after the other.
    filter
        A tag expression (created || paid), or sql: and a condition.
    """
    service = Service(where)
    count = size = 0
    with ExitStack() as stack:
        out: IO[bytes] = sys.stdout.buffer
        if to is not None:
            try:
                out = stack.enter_context(to.open("xb"))
            except FileExistsError:
                raise NotSo(f"{to} exists; name another file") from None
            except OSError as error:
                raise NotSo(f"{to} cannot be written: {error.strerror}") from None
        tell = stack.enter_context(progress("exported"))
        for shown in read(service, topic, queue, {"offset": 0, "clamp": True}, None, filter):
            line = json_line(shown).encode() + b"\n"
            out.write(line)
            count, size = count + 1, size + len(line)
            if count % 1_000 == 0:
                tell(1_000, size)
                size = 0
        out.flush()
    if where.json and to is not None:
        print_json({"topic": topic, "exported": count})
    else:
        say(f"exported {count} messages of {topic}")


@importer.default
def import_(
    topic: str,
    /,
    *files: Path,
    keep_queues: bool = False,
    rate: float | None = None,
    where: Where = Where(),
) -> None:
    """Send messages from JSON lines, as `export` writes them.

    Times, ids and offsets are new; the rest of each message is as it was.

    Parameters
    ----------
    files
        Where they are; else stdin.
    keep_queues
        Each goes to the queue that it came from.
    rate
        At most so many messages a second.
    """
    if rate is not None and rate <= 0:
        raise NotSo(f"--rate is {rate}; it is more than 0")
    service = Service(where)
    count = 0
    with progress("imported") as tell:
        for path in files or (Path("-"),):
            name = "stdin" if str(path) == "-" else str(path)
            with opened(path) as file:
                messages = json_messages(file, name, keep_queues=keep_queues)
                count += send_many(service, topic, messages, rate=rate, sent=tell)
    if where.json:
        print_json({"topic": topic, "imported": count})
    else:
        say(f"imported {count} messages into {topic}")


class progress:  # noqa: N801  # used as a function
    """A line on a terminal that counts; nothing elsewhere. Gives what is to be told of progress."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._count = self._size = 0
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Callable[[int, int], object]:
        return self._tell

    def _tell(self, count: int, size: int) -> None:
        self._count += count
        self._size += size
        if self._is_shown:
            text = f"{self._verb} {self._count:,} messages, {bytes_text(self._size)}"
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._is_shown and self._count:
            sys.stderr.write("\r\x1b[K")
