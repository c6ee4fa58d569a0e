"""Settling retries within a poll: handles of any of the member's topics. Event loop only."""

from collections.abc import Sequence

from app.broker.consume.settler import Settler
from app.broker.polling.poll_values import Settles
from app.broker.results import Extend, Nack, SettleAction, SettleResult
from app.domain.errors import CurlewError, InvalidReceiptHandle


class _OfTopic:
    """What is to be settled in one topic."""

    __slots__ = ("acks", "dead_letters", "extends", "nacks", "releases")

    def __init__(self) -> None:
        self.acks: list[str] = []
        self.nacks: list[Nack] = []
        self.extends: list[Extend] = []
        self.dead_letters: list[Nack] = []
        self.releases: list[str] = []


class RetrySettles:
    """One per broker."""

    def __init__(self, settler: Settler) -> None:
        self._settler = settler

    async def settle(self, group: str, asked: Settles) -> list[SettleResult]:
        """One result for each handle, in the order acks, nacks, extends, dead letters, releases.

        A topic or a store that refuses is the error of its handles; the others are settled.
        """
        topics: dict[str, _OfTopic] = {}
        results: dict[tuple[SettleAction, str], SettleResult] = {}

        def place(handle: str, action: SettleAction) -> _OfTopic | None:
            try:
                topic, of_group = self._settler.names_of(handle)
                if of_group != group:
                    raise InvalidReceiptHandle(
                        "the receipt handle is of another group",
                        hint="settle it in a poll of its own group, or by messages:settle",
                    )
            except CurlewError as error:
                results[action, handle] = SettleResult(handle, action, error)
                return None
            return topics.setdefault(topic, _OfTopic())

        for action, handle, entry in _entries(asked):
            found = place(handle, action)
            if found is not None:
                _add(found, action, entry)
        for topic, one in topics.items():
            for result in await self._settle_topic(topic, group, one):
                results[result.action, result.receipt_handle] = result
        return [results[action, handle] for action, handle, _ in _entries(asked)]

    async def _settle_topic(self, topic: str, group: str, one: _OfTopic) -> Sequence[SettleResult]:
        try:
            return await self._settler.settle(
                *(topic, group),
                acks=one.acks,
                nacks=one.nacks,
                extends=one.extends,
                dead_letters=one.dead_letters,
                releases=one.releases,
            )
        except CurlewError as error:
            asked = Settles(one.acks, one.nacks, one.extends, one.dead_letters, one.releases)
            return [SettleResult(handle, action, error) for action, handle, _ in _entries(asked)]


_Entry = str | Nack | Extend


def _entries(asked: Settles) -> list[tuple[SettleAction, str, _Entry]]:
    """Everything that is asked for, in the order of the results."""
    found: list[tuple[SettleAction, str, _Entry]] = []
    found += [("ack", handle, handle) for handle in asked.acks]
    found += [("nack", each.receipt_handle, each) for each in asked.nacks]
    found += [("extend", each.receipt_handle, each) for each in asked.extends]
    found += [("dead_letter", each.receipt_handle, each) for each in asked.dead_letters]
    found += [("release", handle, handle) for handle in asked.releases]
    return found


def _add(one: _OfTopic, action: SettleAction, entry: _Entry) -> None:
    match action, entry:
        case "ack", str():
            one.acks.append(entry)
        case "nack", Nack():
            one.nacks.append(entry)
        case "extend", Extend():
            one.extends.append(entry)
        case "dead_letter", Nack():
            one.dead_letters.append(entry)
        case "release", str():
            one.releases.append(entry)
