"""The audit: who changed what, and who was denied what."""

from typing import Final

from app.web.serving.families import Family
from app.web.serving.fields import moment_ms_of
from app.web.serving.page import PAGE_SIZE, Outcome, Page

family: Final = Family("audit", label="Audit", path="audit", key="a", section="Access")

_FIELDS: Final = ("since", "principal", "action", "resource")


@family.page("/audit")
async def audit(page: Page) -> Outcome:
    """Entries since a time, oldest first."""
    asked = {name: page.query(name) for name in _FIELDS}
    token = page.query("page_token")
    since_ms = moment_ms_of(asked["since"])
    found = await page.get(
        "audit",
        since_ms=since_ms,
        principal=asked["principal"],
        action=asked["action"],
        resource=asked["resource"],
        page_token=token,
        page_size=PAGE_SIZE,
    )
    return page.show(
        "access/audit.html",
        entries=[_with_changes(each) for each in found["entries"]],
        heads=found["heads"],
        next_token=found["next_page_token"],
        asked=asked,
        is_unreadable=bool(asked["since"]) and since_ms is None,
        is_filtered=any(asked.values()),
        token=token,
    )


def _with_changes(entry: dict[str, object]) -> dict[str, object]:
    """An entry with what is another after it: (name, before, after)."""
    before, after = entry["before"], entry["after"]
    old = before if isinstance(before, dict) else {}
    new = after if isinstance(after, dict) else {}
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return {**entry, "changes": [(name, old.get(name), new.get(name)) for name in names]}
