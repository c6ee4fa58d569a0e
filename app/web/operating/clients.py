"""Consumers and producers: one client by its id, those of a group, or those of a topic."""

from http import HTTPStatus
from typing import Final

from app.web.serving.api import Json, Refused
from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import PAGE_SIZE, Outcome, Page

family: Final = Family("clients", label="Clients", path="clients", key="c", section="Operation")


@family.page("/clients", live_s=LIVE_S)
async def clients(page: Page) -> Outcome:
    """What the address asks for: `client`, `group` or `topic`."""
    asked = {name: page.query(name) for name in ("group", "topic")}
    asked["client"] = page.exactly("client")
    token = page.query("page_token")
    listed: dict[str, str | int | None] = {"page_token": token, "page_size": PAGE_SIZE}
    consumers, producers, next_token = [], [], None
    if asked["client"]:
        found = await _client(page, asked["client"])
        consumers, producers = found["consumes"], found["produces"]
    elif asked["group"]:
        found = await page.get("groups", asked["group"], "clients", **listed)
        consumers, next_token = found["clients"], found["next_page_token"]
    elif asked["topic"]:
        found = await page.get("topics", asked["topic"], "producers", **listed)
        producers, next_token = found["clients"], found["next_page_token"]
    return page.show(
        "operating/clients.html",
        asked=asked,
        consumers=consumers,
        producers=producers,
        next_token=next_token,
        token=token,
    )


async def _client(page: Page, client_id: str) -> Json:
    """What it consumes and produces; nothing of one that was not heard of."""
    try:
        found: Json = await page.get("clients", client_id)
    except Refused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return {"consumes": [], "produces": []}
    return found
