"""`curlew lag [GROUP]`: how far behind a group is, or all are."""

import time
from typing import Any

from curlew_client.command.output import is_terminal, print_json, print_line, print_table
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo, span_text
from curlew_client.wire.durations import seconds_of

app = App("lag", "How far behind a group is: what waits, is in flight, or comes again.")

_SUMS = ("ready", "in_flight", "retrying", "delayed", "dead")
_COLUMNS = ("topic", "queue", "committed", "end", "ready", "in flight", "delayed", "oldest", "note")


@app.default
def lag(
    group: str | None = None,
    /,
    *,
    topic: str | None = None,
    watch: bool = False,
    every: str = "2s",
    where: Where = Where(),
) -> None:
    """How far behind a group is: what waits, is in flight, or comes again.

    Without GROUP one line for each, in a cluster of what the shard of the node that is asked has.

    Parameters
    ----------
    topic
        This topic only.
    watch
        Look again and again, until Ctrl-C; with --json one line each time.
    every
        How often.
    """
    service = Service(where)
    if group is None:
        if topic is not None or watch:
            raise NotSo("--topic and --watch are for one group: `curlew lag GROUP`")
        _print_all(list(service.pages("/v1/groups", "lag", show="lag")), as_json=where.json)
        return
    every_s = max(seconds_of("--every", every), 0.1)

    def look() -> Document:
        return service.get(f"/v1/groups/{part(group)}/lag", topic=topic)

    if not watch:
        found = look()
        print_json(found) if where.json else _print(found)
    elif where.json or not is_terminal():
        import json

        while True:
            found = look()
            print_line(json.dumps(found) if where.json else _sum_line(found))
            time.sleep(every_s)
    else:
        _watch(look, every_s)


def _print_all(groups: list[Document], *, as_json: bool) -> None:
    if as_json:
        print_json(groups)
        return
    print_table(
        ("group", *(name.replace("_", " ") for name in _SUMS), "oldest"),
        [
            (each["group"], *(each[name] for name in _SUMS), _age(each["oldest_ms"]))
            for each in groups
        ],
        empty="there are no groups",
    )


def _print(found: Document) -> None:
    print_line(_sum_line(found))
    print_table(_COLUMNS, _rows(found), empty="the group reads no topic yet")


def _sum_line(found: Document) -> str:
    counts = ", ".join(f"{found[name]} {name.replace('_', ' ')}" for name in _SUMS)
    oldest = found["oldest_ms"]
    return f"{found['group']}: {counts}{f', oldest {_age(oldest)}' if oldest else ''}"


def _rows(found: Document) -> list[tuple[Any, ...]]:
    return [
        (
            topic["topic"],
            queue["queue_id"],
            queue["committed_offset"],
            queue["max_offset"],
            queue["ready"],
            queue["in_flight"],
            queue["delayed"],
            _age(queue["oldest_ms"]),
            queue["reason"] or "",
        )
        for topic in found["topics"]
        for queue in topic["queues"]
    ]


def _age(ms: int | None) -> str:
    if ms is None:
        return ""
    return span_text(max(time.time_ns() // 1_000_000 - ms, 0))


def _watch(look: Any, every_s: float) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def table() -> Table:
        found = look()
        shown = Table(title=_sum_line(found), box=SIMPLE_HEAD, title_justify="left")
        for name in _COLUMNS:
            shown.add_column(name)
        for row in _rows(found):
            shown.add_row(*(Text(str(cell)) for cell in row))
        return shown

    with Live(table(), auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            live.update(table(), refresh=True)
