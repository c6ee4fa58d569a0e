"""The first page: what goes through the node now, how far groups are behind, what is wrong."""

from typing import Final

from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import Outcome, Page

family: Final = Family("overview", label="Overview", path="", key="o")


@family.page("/", live_s=LIVE_S)
async def overview(page: Page) -> Outcome:
    """The statistics of the node, or of nothing for who may not see them."""
    stats = await page.find("stats", step="15s")
    nodes = await page.find("nodes")
    health = (await page.api.ask("GET", "/readyz", bad=503)).json()
    first = None
    if stats is None or not stats["topics"]:
        first = (await page.get("topics", page_size=1))["topics"]
    return page.show(
        "messaging/overview.html",
        stats=stats,
        nodes=[] if nodes is None else nodes["nodes"],
        troubles=[*health["reasons"], *health["degraded"]],
        is_bare=first == [],
    )
