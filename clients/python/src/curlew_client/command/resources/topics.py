"""`curlew topic …`."""

from typing import Annotated

from cyclopts import Parameter

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_table
from curlew_client.command.running import new_app
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import NotSo, pairs_of, time_text, value_of

app = new_app("topic", "List, show, make, change and delete topics.")

Settings = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative=(), help="A setting: name=value; again for more."),
]


@app.command(name="list")
def list_(prefix: str = "", /, *, where: Where = Where()) -> None:
    """All topics, or those that begin with PREFIX."""
    found = list(Service(where).pages("/v1/topics", "topics", prefix=prefix))
    if where.json:
        print_json(found)
        return
    print_table(
        ("topic", "queues", "type", "permission", "retention", "made"),
        [
            (
                each["name"],
                each["queues"],
                each["type"],
                each["permission"],
                each["retention"],
                time_text(each["created_ms"]),
            )
            for each in found
        ],
        empty=f"no topic begins with {prefix!r}" if prefix else "there are no topics",
    )


@app.command
def show(topic: str, /, *, where: Where = Where()) -> None:
    """The settings of a topic, and what is in its queues."""
    service = Service(where)
    settings = service.get(f"/v1/topics/{part(topic)}")
    stats = service.get(f"/v1/topics/{part(topic)}/stats", range="1m", step="5s")
    if where.json:
        print_json({**settings, "depth": stats["depth"], "queue_depths": stats["queues"]})
        return
    print_fields({**readable(settings), "depth": stats["depth"]})
    print_table(
        ("queue", "from", "end", "messages"),
        [
            (each["queue_id"], each["min_offset"], each["max_offset"], each["depth"])
            for each in stats["queues"]
        ],
    )


@app.command
def stats(topic: str, /, *, where: Where = Where()) -> None:
    """Counters and rates of a topic."""
    found = Service(where).get(f"/v1/topics/{part(topic)}/stats")
    if where.json:
        print_json(found)
        return
    rates = found["rates"]
    print_table(
        ("what", "since start", *(f"{window} (1/s)" for window in rates)),
        [
            (name, count, *(rates[window].get(name) for window in rates))
            for name, count in found["counters"].items()
        ],
    )


@app.command
def create(
    topic: str,
    /,
    *,
    queues: int | None = None,
    type: str | None = None,
    retention: str | None = None,
    settings: Settings = (),
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Make a topic. One that exists is refused: `topic set` changes it.

    Parameters
    ----------
    queues
        How many; more queues, more consumers in order side by side.
    type
        normal, fifo, delay or transaction.
    retention
        How long messages stay, such as 3d.
    """
    service = Service(where)
    body = {"queues": queues, "type": type, "retention": retention}
    body = {name: value for name, value in body.items() if value is not None}
    body |= {name: value_of(text) for name, text in pairs_of("--set", settings).items()}
    if not dry_run and exists(service, f"/v1/topics/{part(topic)}"):
        raise NotSo(f"the topic {topic!r} exists; `curlew topic set {topic} …` changes it")
    change(
        service,
        "PUT",
        f"/v1/topics/{part(topic)}",
        body=body,
        dry_run=dry_run,
        as_json=where.json,
        done=f"made topic {topic}",
    )


@app.command(name="set")
def set_(
    topic: str,
    /,
    *settings: str,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Change settings: `curlew topic set orders queues=8 retention=7d permission=r`.

    `null` gives a setting its default back.
    """
    if not settings:
        raise NotSo("name a setting and its value, such as queues=8")
    body = {name: value_of(text) for name, text in pairs_of("a setting", settings).items()}
    change(
        Service(where),
        "PATCH",
        f"/v1/topics/{part(topic)}",
        body=body,
        dry_run=dry_run,
        as_json=where.json,
        done=f"changed topic {topic}",
    )


@app.command
def delete(
    topic: str,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Delete a topic with all its messages."""
    service = Service(where)
    path = f"/v1/topics/{part(topic)}"
    if not dry_run:
        depth = service.get(f"{path}/stats", range="1m", step="5s")["depth"]
        if not confirm(f"Delete topic {topic} with {depth} messages for ever?", yes=yes):
            return Exit.REFUSED
    change(
        service, "DELETE", path, dry_run=dry_run, as_json=where.json, done=f"deleted topic {topic}"
    )
    return Exit.DONE


def exists(service: Service, path: str) -> bool:
    """Whether there is something at a path."""
    from curlew_client.errors import NotFound

    try:
        service.get(path)
    except NotFound:
        return False
    return True


def readable(shown: dict[str, object]) -> dict[str, object]:
    """Times as people read them; what came twice, once."""
    shown = {
        name: value
        for name, value in shown.items()
        if name.endswith("ed_ms") or name.removesuffix("_ms") not in shown.keys() - {name}
    }
    return {
        (name.removesuffix("_ms") if name.endswith("ed_ms") else name): (
            time_text(value) if name.endswith("ed_ms") else value
        )
        for name, value in shown.items()
    }
