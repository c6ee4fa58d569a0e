"""The first page: what goes through the node now."""

from typing import Final

from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import Outcome, Page

family: Final = Family("overview", label="Overview", path="", key="o")


@family.page("/", live_s=LIVE_S)
async def overview(page: Page) -> Outcome:
    """Nodes, and the first topics."""
    nodes = await page.find("nodes")
    topics = await page.get("topics", page_size=5)
    return page.show("messaging/overview.html", nodes=nodes, topics=topics["topics"])
