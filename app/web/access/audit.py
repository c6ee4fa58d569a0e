"""The audit: who changed what, and who was denied what."""

from typing import Final

from app.web.serving.families import Family
from app.web.serving.fields import moment_ms_of
from app.web.serving.page import PAGE_SIZE, Outcome, Page

family: Final = Family("audit", label="Audit", path="audit", key="a", section="Access")

_FIELDS: Final = ("since", "principal", "action", "resource")


@family.page("/audit")
async def audit(page: Page) -> Outcome:
    """Entries since a time, the newest first. `page_token`: those older than a page; `newer`: those
    newer than it."""
    asked = {name: page.query(name) for name in _FIELDS}
    newer = page.query("newer")
    since_ms = moment_ms_of(asked["since"])
    found = await page.get(
        "audit",
        since_ms=since_ms,
        principal=asked["principal"],
        action=asked["action"],
        resource=asked["resource"],
        direction="forward" if newer else "backward",
        page_token=newer or page.query("page_token"),
        page_size=PAGE_SIZE,
    )
    entries, ways = found["entries"], [found["previous_page_token"], found["next_page_token"]]
    if newer:
        entries, ways = entries[::-1], ways[::-1]
    return page.show(
        "access/audit.html",
        entries=[_with_changes(each) for each in entries],
        heads=found["heads"],
        newer_token=ways[0],
        older_token=ways[1],
        asked=asked,
        is_unreadable=bool(asked["since"]) and since_ms is None,
        is_filtered=any(asked.values()) or page.here() != "?",
    )


def _with_changes(entry: dict[str, object]) -> dict[str, object]:
    """An entry with what is another after it: (name, before, after)."""
    before, after = entry["before"], entry["after"]
    old = before if isinstance(before, dict) else {}
    new = after if isinstance(after, dict) else {}
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return {**entry, "changes": [(name, old.get(name), new.get(name)) for name in names]}
