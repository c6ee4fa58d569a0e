"""The pages at `/ui`: server-rendered, one stylesheet, no build step. They translate and decide
nothing, and read the node through its own API (`serving.api`), so no row is built twice.

How a page is added:

1. A family of pages is a module in a folder by subject (`messaging`, …) with a `family`, which is
   listed in `FAMILIES` below, in the order of the navigation. `key` is the letter behind `g`.
2. A handler takes a `Page` and gives an outcome::

       @family.page("/topics/{topic}", live_s=LIVE_S)
       async def one_topic(page: Page) -> Outcome:
           topic = page.name("topic")
           found = await page.get("topics", topic)           # GET /v1/topics/{topic}
           can_send = await page.may("PUB", topic=topic)     # for buttons; the API decides anyway
           return page.show("messaging/topic.html", topic=found, can_send=can_send)

       @family.act("/topics/{topic}/delete")
       async def delete(page: Page) -> Outcome:
           await page.act("DELETE", "topics", page.name("topic"))
           return Moved("topics", page.gettext("The topic is deleted."))

   `page.get` stands under "as JSON"; `page.find` is the same, and None for 404 and 403. What the
   API refuses (`Refused`) becomes a page; catch it to show a form again with `ui.problem(problem)`.
   A form for a dangerous act has a field with `data-typed="name"`; its handler compares it too.
3. The template extends `frame/layout.html`, sets `crumbs` (labels, and paths below the root), and
   fills the blocks `title`, `heading`, `actions`, `content`, `live` (sent anew while the page is
   open, so it has no forms) and `after`. Links begin with `{{ root }}/`: a page knows no absolute
   address. `ui` has the macros of `frame/parts.html`: `command`, `empty`, `problem`, `figure`,
   `tabs`, `pager`, `chart`. Filters are in `rendering.values`. An empty state has the curl line
   that would fill it, made of `curl` ("curl http://node/v1").
4. Every text is in `{% trans %}` or `_()`, in Python in `page.gettext(...)`. Its Chinese stands in
   a `.po` file of `locale/zh`; there is one for each folder of pages. `make messages` adds what is
   missing there. What the API says in English (a reason, a hint, a title) goes through the filter
   `said`: `api.po` has its translations by the form of the sentence.
5. Add the page to `tests/support/clients/ui_pages.py`: the sweeps in `tests/ui` go through all of
   that list (both themes, two widths, axe, policy, pictures, planted scripts, without scripts).
"""

from collections.abc import Mapping, Sequence
from gettext import NullTranslations
from typing import Final

from starlette.applications import Starlette

from app.domain.clock import Clock
from app.web.access import audit, policies, principals
from app.web.consuming import (
    dead_letters,
    group_members,
    groups,
    offset_reset,
    receiving,
    redriving,
)
from app.web.entrance import sign_in
from app.web.messaging import messages, overview, publishing, search, tail, topics
from app.web.operating import about, clients, draining, nodes, replicas, shards
from app.web.serving.api import AsgiApp
from app.web.serving.families import Family
from app.web.serving.live import LiveStreams
from app.web.waiting import delayed, schedules, transactions
from app.web.web_site import Site

FAMILIES: Final[Sequence[Family]] = (
    overview.family,
    topics.family,
    messages.family,
    publishing.family,
    tail.family,
    search.family,
    groups.family,
    group_members.family,
    offset_reset.family,
    receiving.family,
    dead_letters.family,
    redriving.family,
    delayed.family,
    schedules.family,
    transactions.family,
    clients.family,
    nodes.family,
    shards.family,
    draining.family,
    replicas.family,
    about.family,
    principals.family,
    policies.family,
    audit.family,
    sign_in.family,
)
"""In the order of the navigation, where families with the same `section` stand on end."""


def build_web(
    api: AsgiApp,
    clock: Clock,
    live: LiveStreams | None = None,
    *,
    families: Sequence[Family] = FAMILIES,
    translations: Mapping[str, NullTranslations] | None = None,
) -> Starlette:
    """The application to mount at `/ui`. `api` is the node's own, which the pages ask."""
    site = Site(families, api, clock, live or LiveStreams(), translations=translations)
    return site.application()


__all__ = ["LiveStreams", "build_web"]
