"""Settings of a topic or group that a form changes: what would change is shown before it does.

What differs from what is set is a merge patch. Sent once, the form asks with `dry_run` and shows
what would change, and whom that disturbs; sent again with `confirmed`, it changes
that. `If-Match` has the version that was shown, so that nobody overwrites what another has changed
meanwhile, and a form that is sent twice does nothing twice.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from app.web.serving.api import Json, Refused
from app.web.serving.page import Moved, Outcome, Page

_INTEGER: Final = re.compile(r"[0-9]{1,18}")
_FRACTION: Final = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of the form, by the name that the API has for it."""

    name: str
    choices: tuple[str, ...] = ()
    """What it can be, "" for the default; empty: anything, and nothing is the default."""


def field_texts(
    settings: Sequence[Setting], document: Json, form: Mapping[str, str]
) -> dict[str, str]:
    """What stands in the fields: what was sent, else what is set."""
    return {each.name: form.get(each.name, _text(document[each.name])) for each in settings}


def patch_of(settings: Sequence[Setting], document: Json, form: Mapping[str, str]) -> Json:
    """The merge patch of the fields that differ from what is set; null is the default."""
    sent = {each.name: form[each.name].strip() for each in settings if each.name in form}
    return {name: _value(text) for name, text in sent.items() if text != _text(document[name])}


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _value(text: str) -> int | float | str | None:
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FRACTION.fullmatch(text) else text or None


async def change_settings(
    page: Page,
    thing: tuple[str, str],
    settings: Sequence[Setting],
    again: Callable[[Page, Json], Awaitable[Outcome]],
) -> Outcome:
    """What a form of the settings of `thing` leads to: `("topics", "orders")`. `again` shows the
    form with why it was refused."""
    kind, name = thing
    way = f"{kind}/{quote(name, safe='')}/settings"
    patch = patch_of(settings, await page.get(*thing), page.form)
    if not patch:
        return Moved(way, page.gettext("Everything is set so already."))
    version, is_confirmed = page.form.get("version", ""), "confirmed" in page.form
    try:
        found = await page.act(
            "PATCH",
            *thing,
            query=None if is_confirmed else {"dry_run": "true"},
            json=patch,
            headers={"If-Match": f'"{version}"'} if version.isdecimal() else None,
        )
    except Refused as error:
        return await again(page, error.problem)
    if is_confirmed:
        return Moved(way, page.gettext("The settings are changed."))
    sent = {each.name: page.form[each.name] for each in settings if each.name in page.form}
    return page.show(
        "frame/settings_preview.html",
        name=name,
        way=way,
        changed=found["changed"],
        effects=found["effects"],
        sent={**sent, "version": version},
        crumbs=[(name, f"{kind}/{quote(name, safe='')}"), (page.gettext("Settings"), way)],
    )
