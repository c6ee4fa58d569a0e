"""`curlew topic …`."""

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_table
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Service, Where, part
from curlew_client.command.settings import Settings, change_settings, make, readable
from curlew_client.command.words import time_text

app = App("topic", "List, show, make, change and delete topics.")


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
    given = {"queues": queues, "type": type, "retention": retention}
    make(where, "topic", topic, given, settings, dry_run=dry_run)


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
    change_settings(where, "topic", topic, settings, example="queues=8", dry_run=dry_run)


@app.command
def route(topic: str, /, *, where: Where = Where()) -> None:
    """In which shard each queue is, and who leads it."""
    found = Service(where).get(f"/v1/topics/{part(topic)}/route")
    if where.json:
        print_json(found)
        return
    columns = "queue_id", "shard", "perm", "leader"
    print_table(
        ("queue", "shard", "perm", "leader"),
        [[each[name] for name in columns] for each in found["queues"]],
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
