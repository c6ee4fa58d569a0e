"""A lone node and a cluster that are asked the same, and a random program of requests to ask them.

What a request is about is chosen once for both. Messages are told apart by their texts, and of an
answer is compared what no choice of the server is in: not ids, handles, times and versions
(`CHOSEN`), and of messages without a key not their queues. A receive has messages of one shard, so
what is received is compared when all has been.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

CHOSEN: Final = {
    **dict.fromkeys(("message_id", "transaction_id", "operation_id"), "an id"),
    **dict.fromkeys(("receipt_handle", "recall_handle", "instance", "request_id"), "of one node"),
    **dict.fromkeys(("version", "generation", "page_token", "next_page_token"), "counted"),
    "next_cursor": "a place",
    **dict.fromkeys(("hint", "detail"), "words"),
}
"""Members whose values may differ, and why, but for null. So may times, which end in `_ms`."""
QUEUES: Final = 6
KEYS: Final = [f"order-{number}" for number in range(12)]
PATIENCE: Final = 600
"""Requests until what is waited for is there."""

Document = dict[str, Any]


@dataclass
class Side:
    """One of the two: nodes of which any takes a request."""

    clients: Sequence[httpx.AsyncClient]
    chooses: random.Random
    handles: dict[str, str] = field(default_factory=dict)
    """Receipt, recall handles and ids of transactions, by the texts of messages."""

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Through a node that is chosen for it."""
        client = self.chooses.choice(self.clients)
        return await client.request(method, path, **more)


@dataclass
class Program:
    """What both are asked, one after the other."""

    sides: Sequence[Side]
    chooses: random.Random
    differences: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    count: int = 0
    open: dict[str, list[str]] = field(default_factory=dict)
    """Texts of what is waiting, by what for: `held`, `delayed`, `prepared`."""

    def text(self) -> str:
        """Another one each time."""
        self.count += 1
        return f"m{self.count}"

    def take(self, what: str) -> str | None:
        """One that waits, and does so no more."""
        waiting = self.open.setdefault(what, [])
        return waiting.pop(self.chooses.randrange(len(waiting))) if waiting else None

    async def both(
        self,
        method: str,
        path: Callable[[Side], str] | str,
        of: Callable[[Any], Any] = lambda document: document,
        **more: Any,
    ) -> list[httpx.Response]:
        """Ask both the same, and compare what `of` says of their answers. Values that are
        functions are asked of the side."""
        answers: list[httpx.Response] = []
        for side in self.sides:
            asked = {k: v(side) if callable(v) else v for k, v in more.items()}
            where = path if isinstance(path, str) else path(side)
            answers.append(await side.ask(method, where, **asked))
        shown = path if isinstance(path, str) else path(self.sides[0])
        self.compare(f"{method} {shown}", [(each.status_code, said(each, of)) for each in answers])
        return answers

    def compare(self, what: str, found: Sequence[object]) -> None:
        """Note a difference."""
        self.done.append(what)
        if found[0] != found[1]:
            self.differences.append(f"{what}\n  alone:   {found[0]}\n  cluster: {found[1]}")


def said(answer: httpx.Response, of: Callable[[Any], Any]) -> object:
    """What of an answer is compared."""
    if "json" not in answer.headers.get("content-type", ""):
        return answer.text
    document = answer.json()
    return masked(of(document) if answer.is_success else document)


def masked(value: Any) -> Any:
    """Without what servers choose; that there is something is compared."""
    if isinstance(value, dict):
        return {
            name: each is not None if name in CHOSEN or name.endswith("_ms") else masked(each)
            for name, each in value.items()
        }
    return [masked(each) for each in value] if isinstance(value, list) else value


def unplaced(document: Any) -> Any:
    """Without the places of messages that have no key."""
    places = ("queue_id", "queue_offset", "results")
    return {name: each for name, each in document.items() if name not in places}


def texts(member: str) -> Callable[[Any], list[str]]:
    """The texts in a list, in an order of their own."""
    return lambda document: sorted(str(each.get("text")) for each in document[member])


def rows(member: str, *names: str) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Members of the rows of a list, in an order of their own."""
    return lambda document: sorted(
        tuple(str(each.get(name)) for name in names) for each in document[member]
    )


def by_text(answers: Sequence[httpx.Response], member: str) -> list[Mapping[str, Document]]:
    """Rows of lists by their texts."""
    return [{each["text"]: each for each in answer.json()[member]} for answer in answers]


async def until_same(ask: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """Ask until it is so; the last answer."""
    found = None
    for _ in range(PATIENCE):
        found = await ask()
        if is_so(found):
            return found
        await asyncio.sleep(0)
    return found
