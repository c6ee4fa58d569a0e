"""One search for everything that has a name: topics, groups, message ids and keys."""

from typing import Any, Final

from app.web.messaging.message_bodies import with_preview
from app.web.serving.api import Asked, Refused, address
from app.web.serving.families import Family
from app.web.serving.page import Outcome, Page

family: Final = Family("search", label="Search", path="search", key="s")

SHOWN_MAX: Final = 10
TOPICS_SEARCHED_MAX: Final = 200
"""For keys and ids, by name; more are searched one by one, with `topic`."""


@family.page("/search")
async def search(page: Page) -> Outcome:
    """What is called `q`, or begins so."""
    asked, within = page.query("q"), page.query("topic")
    values: dict[str, Any] = {"asked": asked, "within": within}
    values |= {"topics": [], "groups": [], "messages": [], "searched": 0, "is_more": False}
    values["unknown"] = unknown = set[str]()
    if not asked:
        return page.show("messaging/search.html", **values)
    for kind in ("topics", "groups"):
        try:
            found = await page.get(kind, prefix=asked, page_size=SHOWN_MAX)
            values[kind] = [each["name"] for each in found[kind]]
        except Refused as error:  # what no name may be is no name
            if error.status not in {400, 403, 422}:
                page.lacks(address(kind, query={"prefix": asked}), error)
                unknown.add(kind)
    if within:
        names = [within]
    else:
        listing = await page.get("topics", page_size=TOPICS_SEARCHED_MAX)
        names = [each["name"] for each in listing["topics"]]
        values["is_more"] = bool(listing.get("next_page_token"))
    for name in names:
        found, is_whole = await _in_topic(page, name, asked)
        values["messages"] += found
        if not is_whole:  # the next one may take as long to say that it is not there
            unknown.add("messages")
            values["is_more"] = values["is_more"] or len(names) > 1
            break
        values["searched"] += 1
        if len(values["messages"]) >= SHOWN_MAX:
            values["is_more"] = values["is_more"] or values["searched"] < len(names)
            break
    return page.show("messaging/search.html", **values)


async def _in_topic(page: Page, topic: str, asked: str) -> tuple[list[Any], bool]:
    """Messages of the topic with that id, unique id or key, the newest first; and whether all that
    was asked is answered. After what is not, no more is asked."""
    found: dict[str, Any] = {}
    shown: Asked = {"page_size": SHOWN_MAX, "body": "base64"}
    wheres = []
    if asked.isalnum():
        wheres.append(address("topics", topic, "messages", asked, query={"body": "base64"}))
    wheres += [
        address("topics", topic, "messages", query={name: asked, **shown})
        for name in ("unique_id", "key")
    ]
    for where in wheres:
        try:
            answer = (await page.api.ask("GET", where)).json()
        except Refused as error:
            if error.status not in {400, 403, 404, 422}:
                page.lacks(where, error)
                return list(found.values()), False
            continue
        for message in answer.get("messages", [answer]) if answer else []:
            found[message["message_id"]] = with_preview(message)
    return list(found.values()), True
