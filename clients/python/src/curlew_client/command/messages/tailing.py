"""`curlew tail`: messages as they come, over a stream of server-sent events.

A stream that ends, at its longest time or because the node went, is taken up again behind the last
message that was printed.
"""

import http.client
import json
import time
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlencode

from curlew_client.command.messages.shapes import json_line, line_of
from curlew_client.command.output import print_line, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo
from curlew_client.errors import ConnectionFailed, CurlewError
from curlew_client.wire.http1 import Answer
from curlew_client.wire.problems import error_of

app = App("tail", "Print messages as they come; takes nothing away.")

SILENCE_S: float = 60.0
"""A node lets nothing be heard for a quarter of this at most."""
PAUSE_S: float = 1.0


@app.default
def tail(
    topic: str,
    /,
    *,
    lines: Annotated[int, Parameter(name=("--lines", "-n"))] = 10,
    queue: int | None = None,
    filter: str | None = None,
    limit: int | None = None,
    where: Where = Where(),
) -> None:
    """Print messages as they come, until Ctrl-C; takes nothing away.

    Parameters
    ----------
    lines
        Begin with so many messages of each queue that are there.
    queue
        This queue only.
    filter
        A tag expression (created || paid), or sql: and a condition.
    limit
        End after so many messages.
    """
    if lines < 0 or (limit is not None and limit < 1):
        raise NotSo("--lines is 0 or more, --limit 1 or more")
    service = Service(where)
    params: Document = {"tail": lines, "queue_id": queue, "filter": filter}
    cursor: str | None = None
    count = 0
    while True:
        try:
            for place, shown in _events(service, topic, params, cursor):
                cursor = place
                print_line(json_line(shown) if where.json else line_of(shown))
                count += 1
                if count == limit:
                    return
        except ConnectionFailed as error:
            if cursor is None and count == 0:
                raise
            say(f"curlew: {error}; trying again")
        time.sleep(PAUSE_S)


def _events(
    service: Service, topic: str, params: Document, cursor: str | None
) -> Iterator[tuple[str, Document]]:
    """The messages of one stream, each with the place behind it."""
    node = service.session.pick()
    given = {name: value for name, value in params.items() if value is not None}
    if cursor is not None:
        given.pop("tail")
    target = f"/v1/topics/{part(topic)}/stream"
    headers = {**service.session.headers_of(target), "Accept": "text/event-stream"}
    if cursor is not None:
        headers["Last-Event-ID"] = cursor
    path = f"{node.prefix}{target}?{urlencode(given)}"
    connection: http.client.HTTPConnection
    if node.is_tls:
        tls = service.session.options.tls
        connection = http.client.HTTPSConnection(
            node.host, node.port, timeout=SILENCE_S, context=tls
        )
    else:
        connection = http.client.HTTPConnection(node.host, node.port, timeout=SILENCE_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise _refusal(answer, node.url)
        yield from _parsed(answer)
    except (OSError, http.client.HTTPException) as error:
        text = f"the stream of {node.url} broke: {error}"
        raise ConnectionFailed(text, "not_stored") from error
    finally:
        connection.close()


def _parsed(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Document]]:
    place, event = "", ""
    while line := answer.readline():
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name == "id":
            place = value
        elif name == "event":
            event = value
        elif name == "data" and not event:
            yield place, json.loads(value)
        elif not name:
            event = ""


def _refusal(answer: http.client.HTTPResponse, url: str) -> CurlewError:
    lines = "".join(f"\r\n{name}: {value}" for name, value in answer.getheaders())
    head = f"HTTP/1.1 {answer.status} X{lines}".encode("latin-1", "replace")
    return error_of(Answer(answer.status, head, answer.read(1_000_000), keep_alive=False), url)
