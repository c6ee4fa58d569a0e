"""Pulls that a node answers from its replica while another node leads the shard.

What its replica has of a queue is what the leader has, up to some offset. Messages below that are
given here: to who says `MQ-Read: any`, when the replica is in sync, and to everybody as
`MQ-Stale` when nobody leads. All else is the leader's: what comes next, how far the queue goes, why
an offset is not there. Nobody waits here. Event loop only.
"""

import logging
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, NamedTuple

from app.api.dataplane.pulls.pull_answers import PullAnswers
from app.api.dataplane.pulls.pulling import Asked, PullForms
from app.api.dataplane.pulls.read_choice import STALE
from app.api.http.request_context import RequestContext
from app.api.ports import FollowedStore, Metadata, ReadsHere
from app.broker.context import Gate
from app.broker.read.long_polls import LongPolls
from app.broker.read.puller import Puller
from app.broker.results import PullRequest, PullResult
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.limits import Limits

_LOG: Final = logging.getLogger(__name__)
_NOBODY_WAITS: Final = LongPolls(0)
_BODY: Final = frozenset({b"content-length", b"transfer-encoding"})


class _Context(NamedTuple):
    """Of one opening of the store."""

    store: FollowedStore
    metadata: Metadata
    clock: Clock
    limits: Limits
    readers: Executor
    gate: Gate


class _Opened(NamedTuple):
    """One opening of the store."""

    store: FollowedStore
    puller: Puller


class FollowedPulls:
    """One per node."""

    def __init__(
        self,
        here: ReadsHere,
        metadata: Metadata,
        clock: Clock,
        limits: Limits,
        forms: PullForms,
    ) -> None:
        self._here = here
        self._metadata = metadata
        self._clock = clock
        self._limits = limits
        self._forms = forms
        self._gate = Gate()
        self._gate.closed_because = ""
        self._opened: _Opened | None = None

    @property
    def hears_leader(self) -> bool:
        """As `ReadsHere`."""
        return self._here.hears_leader

    async def answered(
        self, exchange: RequestContext, topic: str, queue: str, *, is_stale: bool
    ) -> bool:
        """Answer from the replica of this node; False: it is for another to answer, and to say what
        is wrong with the request."""
        if not _BODY.isdisjoint(exchange.headers):
            return False
        try:
            asked = self._forms.asked(exchange, queue)
        except CurlewError:
            return False
        if not is_stale and (not asked.reads_any or asked.request.tail is not None):
            return False
        found = await self._read(topic, asked, is_stale=is_stale)
        if found is None:
            return False
        answers, result = found
        if is_stale:
            asked.headers.append(STALE)
        await self._forms.answer(exchange, asked, result, answers)
        return True

    async def _read(
        self, topic: str, asked: Asked, *, is_stale: bool
    ) -> tuple[PullAnswers, PullResult] | None:
        store = self._here.readable(is_stale=is_stale)
        view = self._metadata.snapshot.topics.get(topic)
        if store is None or view is None:
            return None
        opened, result = self._opened_as(store), None
        request = replace(asked.request, wait_s=0.0, in_place=False)
        turn = store.begin(topic, view.generation)
        if turn is None:
            return None
        try:
            result = await opened.puller.pull(topic, asked.queue_id, request)
        except CurlewError:
            pass  # who leads says why
        except OSError:
            _LOG.warning("the replica of this node cannot be read", exc_info=True)
        finally:
            is_valid = store.end(turn)
        if result is None or not is_valid or not _is_enough(asked.request, result, is_stale):
            return None
        return PullAnswers(opened), result._replace(up_to_date=False)  # the leader alone knows

    def _opened_as(self, store: FollowedStore) -> _Opened:
        opened = self._opened
        if opened is None or opened.store is not store:
            context = _Context(
                *(store, self._metadata, self._clock, self._limits, self._here.readers, self._gate)
            )
            self._opened = opened = _Opened(store, Puller(context, _NOBODY_WAITS))
        return opened


def _is_enough(request: PullRequest, result: PullResult, is_stale: bool) -> bool:
    """Whether it is what the leader would give, or a part of it, and brings the reader on. At the
    end of what is here only the leader knows what comes next; a gap is perhaps none there, and what
    is not readable here perhaps is there."""
    if result.read.gaps or result.clamped:
        return False
    count, end = len(result.read.records), request.end_offset
    is_ended = end is not None and result.next_offset >= end
    if is_ended or result.next_offset < result.max_offset:
        return True
    if is_stale:
        return count > 0
    return count >= (request.min_messages if request.wait_s else 1)
