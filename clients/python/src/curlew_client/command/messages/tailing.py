"""`curlew tail`: messages as they come, over a stream of server-sent events.

A stream that ends, at its longest time or because the node went, is taken up again behind the last
message that was printed.
"""

import json
import time
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlencode

from curlew_client.blocking.streaming import answer_lines
from curlew_client.command.messages.shapes import json_line, line_of
from curlew_client.command.output import print_line, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo
from curlew_client.errors import ConnectionFailed

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
    session = service.session
    node = session.pick()
    given = {name: value for name, value in params.items() if value is not None}
    lines = "accept: text/event-stream\r\n"
    if cursor is not None:
        given.pop("tail")
        lines += f"last-event-id: {cursor}\r\n"
    target = f"/v1/topics/{part(topic)}/stream?{urlencode(given)}"
    request = session.render(node, "GET", target, lines, b"")
    place, event = "", ""
    for line in answer_lines(node, session.options.tls, request, SILENCE_S):
        name, _, value = line.decode().partition(": ")
        if name == "id":
            place = value
        elif name == "event":
            event = value
        elif name == "data" and not event:
            yield place, json.loads(value)
        elif not name:
            event = ""
