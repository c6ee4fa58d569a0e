"""Transactions: half messages that wait for a decision, and the decisions of the last time."""

from http import HTTPStatus
from typing import Final

from app.web.serving.api import Json
from app.web.serving.confirming import is_typed, not_typed
from app.web.serving.families import LIVE_S, Family
from app.web.serving.page import PAGE_SIZE, Moved, Outcome, Page

family: Final = Family("transactions", label="Transactions", path="transactions", key="x")

STATES: Final = ("PREPARED", "COMMITTED", "ROLLED_BACK")


@family.page("/transactions", live_s=LIVE_S)
async def list_transactions(page: Page) -> Outcome:
    """Those in one state, of one producer group or all."""
    state = page.query("state") or STATES[0]
    producers, token = page.query("producer_group"), page.query("page_token")
    found = await page.get(
        "transactions",
        state=None if state == "all" else state,
        producer_group=producers,
        page_token=token,
        page_size=PAGE_SIZE,
    )
    return page.show(
        "waiting/transactions.html",
        transactions=found["transactions"],
        next_token=found["next_page_token"],
        state=state,
        producers=producers,
        token=token,
        is_filtered=bool(producers or page.query("state")),
        names=state_names(page),
    )


def state_names(page: Page) -> dict[str, str]:
    """What the states are called."""
    return {
        "PREPARED": page.gettext("undecided"),
        "COMMITTED": page.gettext("committed"),
        "ROLLED_BACK": page.gettext("rolled back"),
    }


@family.page("/transactions/{transaction}")
async def one_transaction(page: Page) -> Outcome:
    """What is known of it, and the decision."""
    return await _shown(page)


async def _shown(page: Page, problem: Json | None = None) -> Outcome:
    found = await page.get("transactions", page.name("transaction"))
    return page.show(
        "waiting/transaction.html",
        status=HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
        transaction=found,
        names=state_names(page),
        may_decide=await page.may("PUB", topic=found["topic"]),
        problem=problem,
        crumbs=[(page.gettext("Transactions"), "transactions")],
    )


@family.act("/transactions/{transaction}/commit")
async def commit(page: Page) -> Outcome:
    """Let consumers have the message."""
    return await _decide(
        page, "commit", page.gettext("The transaction is committed: consumers get its message.")
    )


@family.act("/transactions/{transaction}/rollback")
async def roll_back(page: Page) -> Outcome:
    """Let nobody have it."""
    return await _decide(
        page, "rollback", page.gettext("The transaction is rolled back: nobody gets its message.")
    )


async def _decide(page: Page, verb: str, done: str) -> Outcome:
    name = page.name("transaction")
    found = await page.get("transactions", name)
    if not is_typed(page, found["producer_group"]):
        return await _shown(page, not_typed(page, found["producer_group"]))
    await page.act("POST", "transactions", f"{name}:{verb}")
    return Moved(f"transactions/{name}", done)
