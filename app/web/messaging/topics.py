"""The list of topics, page by page in the order of their names."""

from typing import Final

from app.web.serving.families import Family
from app.web.serving.page import PAGE_SIZE, Outcome, Page

family: Final = Family("topics", label="Topics", path="topics", key="t")


@family.page("/topics")
async def list_topics(page: Page) -> Outcome:
    """Those whose names begin with `prefix`, from `page_token` on."""
    prefix, token = page.query("prefix"), page.query("page_token")
    found = await page.get("topics", prefix=prefix, page_token=token, page_size=PAGE_SIZE)
    return page.show(
        "messaging/topics.html",
        topics=found["topics"],
        next_token=found.get("next_page_token"),
        prefix=prefix,
        token=token,
    )
