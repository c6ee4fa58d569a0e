"""A live tail of a topic: a sample of what comes, each second, and how many were skipped."""

from collections import deque
from typing import Any, Final

from app.web.messaging.message_bodies import with_preview
from app.web.serving.api import Asked, Json, address
from app.web.serving.families import Family
from app.web.serving.page import Outcome, Page

family: Final = Family("topics")

LOOK_S: Final = 1.0
SAMPLE: Final = 20
"""Messages shown of each second at most: what people can follow, whatever the topic takes."""
KEPT: Final = 100


@family.page("/topics/{topic}/tail", live_s=LOOK_S)
async def tail(page: Page) -> Outcome:
    """The newest messages; those that came since the last look are above."""
    topic, memory = page.name("topic"), page.memory
    offsets = await page.get("topics", topic, "offsets", at="latest")
    ends = {each["queue_id"]: each["offset"] for each in offsets["offsets"]}
    rows: deque[Any] = memory.setdefault("rows", deque(maxlen=KEPT))
    is_first = "ends" not in memory
    before: dict[int, int] = memory.setdefault("ends", {})
    came = sum(max(end - before.get(queue, 0), 0) for queue, end in ends.items())
    memory.setdefault("seen", 0)
    memory.setdefault("skipped", 0)
    if came:
        found = await _newest(page, topic)
        new = [each for each in found if each["queue_offset"] >= before.get(each["queue_id"], 0)]
        rows.extendleft(reversed(new))
        if not is_first:
            memory["seen"] += came
            memory["skipped"] += max(came - len(new), 0)
        memory["ends"] = {
            queue: max(end, *[m["queue_offset"] + 1 for m in new if m["queue_id"] == queue], 0)
            for queue, end in ends.items()
        }
    return page.show(
        "messaging/tail.html",
        topic=topic,
        tab="tail",
        rows=list(rows),
        seen=memory["seen"],
        skipped=memory["skipped"],
        sample=SAMPLE,
    )


async def _newest(page: Page, topic: str) -> list[Json]:
    query: Asked = {"direction": "backward", "page_size": SAMPLE, "body": "base64"}
    where = address("topics", topic, "messages", query=query)
    found = (await page.api.ask("GET", where)).json()["messages"]
    return [with_preview(each) for each in found]
