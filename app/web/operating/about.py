"""What this program is, and where its reference, its figures and its licences are."""

from typing import Final

from app.web.serving.families import Family
from app.web.serving.page import Outcome, Page

family: Final = Family("about", label="About", path="about", key="b", section="Operation")

LICENCE: Final = "Apache-2.0"
LIBRARIES: Final = (("htmx", "0BSD"), ("uPlot", "MIT"))
"""What the pages are made with that others wrote; the files stand beside their licences."""


@family.page("/about")
async def about(page: Page) -> Outcome:
    """Version, node, reader."""
    who = await page.get("whoami")
    nodes = await page.find("nodes")
    return page.show(
        "operating/about.html",
        who=who,
        nodes=[] if nodes is None else nodes["nodes"],
        licence=LICENCE,
        libraries=LIBRARIES,
    )
