"""Commits over several shards: what is asked of each, and what is told of a shard that did not do
it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from app.api.aims.across import Committed
from app.api.aims.body_parts import parts_of
from app.api.http.request_context import RequestContext
from app.api.operations.operation import Operation
from app.api.relay.calls import CallAnswer, CallRequest
from app.api.relay.changes import CHANGE_SECONDS
from app.api.relay.consuming.commits import merged
from app.api.relay.over_shards import OverShards
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError, RelayInterrupted, ShardUnavailable
from app.domain.limits import Limits
from tests.unit.api.relay.exchanges import exchange_of

pytestmark = pytest.mark.anyio

AWAY = ShardUnavailable("it cannot be reached")
CUT = RelayInterrupted("it may have been carried out")
STALE = CallAnswer(409, [], b'{"code":"STALE_GENERATION","detail":"it is 3"}')
GONE = CallAnswer(404, [], b'{"code":"TOPIC_NOT_FOUND","detail":"deleted"}')
BUSY = CallAnswer(503, [], b'{"code":"SYSTEM_BUSY","detail":"later"}')

Outcome = CallAnswer | CurlewError | None
"""None: it does what it is asked for."""
Rows = list[dict[str, int]]


def rows(*places: tuple[int, int]) -> Rows:
    return [{"queue_id": queue_id, "offset": offset} for queue_id, offset in places]


def done(committed: Rows, **more: object) -> dict[str, object]:
    found: dict[str, object] = {"group": "billing", "topic": "orders", "offsets": committed}
    return {**found, "effects": [], "dry_run": False, **more}


class Shards:
    """A relay to the shards a, b and c, of which each has every third queue."""

    def __init__(self, trials: dict[str, Outcome], commits: dict[str, Outcome]) -> None:
        self.limits = Limits()
        self.asked: list[tuple[str, bool, Rows]] = []
        self.places = SimpleNamespace(
            topic=lambda _: SimpleNamespace(queues=6),
            of_queue=lambda _, queue_id: "abc"[queue_id % 3] if queue_id % 3 else None,
            metadata=SimpleNamespace(shard="a"),
        )
        self.body: dict[str, Any] = {}
        self._trials, self._commits = trials, commits
        self.refreshed = 0

    def spans(self, _exchange: RequestContext) -> bool:
        return True

    async def refresh(self) -> None:
        self.refreshed += 1

    async def body_of(self, _exchange: RequestContext) -> bytes:
        return msgspec.json.encode(self.body)

    async def call(
        self,
        _exchange: RequestContext,
        shard: str,
        request: CallRequest,
        *,
        seconds: float,
        sends: bool = False,
    ) -> CallAnswer:
        tries = b"dry_run=true" in request.target
        assert (seconds, sends) == (CHANGE_SECONDS, not tries)
        body = msgspec.json.decode(request.body, type=dict[str, Any])
        self.asked.append((shard, tries, body["offsets"]))
        outcome = (self._trials if tries else self._commits).get(shard)
        if isinstance(outcome, CurlewError):
            raise outcome
        answer = done(body["offsets"], dry_run=tries)
        return outcome or CallAnswer(200, [], msgspec.json.encode(answer))


async def commit(
    *places: tuple[int, int],
    trials: dict[str, Outcome] | None = None,
    commits: dict[str, Outcome] | None = None,
    query: bytes = b"",
    more: Sequence[dict[str, object]] = (),
) -> tuple[tuple[int, Any] | None, Shards]:
    """The answer, None when it is left to the handler; and what was asked."""
    shards = Shards(trials or {}, commits or {})
    shards.body = {"offsets": [*rows(*places), *more]}
    exchange, events = exchange_of("PUT", "/v1/groups/billing/offsets/orders", query)
    operation = cast("Operation", SimpleNamespace(across=Committed()))
    over = OverShards(cast("Relay", shards))
    if not await over.answered(exchange, operation, ("billing", "orders")):
        return None, shards
    return (events[0]["status"], msgspec.json.decode(events[0]["body"])), shards


async def test_each_shard_is_tried_and_told_its_own_rows() -> None:
    answer, shards = await commit((1, 5), (0, 7), (4, 6))
    assert answer == (200, done(rows((0, 7), (1, 5), (4, 6))))
    parts = [("b", rows((1, 5), (4, 6))), ("a", rows((0, 7)))]
    assert shards.asked == [(shard, tries, own) for tries in (True, False) for shard, own in parts]


async def test_a_dry_run_is_a_trial_alone() -> None:
    answer, shards = await commit((0, 1), (1, 1), query=b"dry_run=1")
    assert answer == (200, done(rows((0, 1), (1, 1)), dry_run=True))
    assert all(tries for _, tries, _ in shards.asked)


@pytest.mark.parametrize("query", [b"", b"dry_run=perhaps"])
async def test_what_is_of_one_shard_or_not_well_is_left_to_the_handler(query: bytes) -> None:
    answer, shards = await commit((0, 1), (3, 1), *([(1, 1)] if query else []), query=query)
    assert (answer, shards.asked) == (None, [])


@pytest.mark.parametrize("refusal", [STALE, GONE])
async def test_what_one_refuses_none_does(refusal: CallAnswer) -> None:
    answer, shards = await commit((0, 1), (1, 1), trials={"b": refusal})
    assert answer == (refusal.status, msgspec.json.decode(refusal.body))
    assert all(tries for _, tries, _ in shards.asked)


def refused(code: str, **about: int) -> CallAnswer:
    body = msgspec.json.encode({"code": code, "detail": "no", **about})
    return CallAnswer(409, [], body)


NO_QUEUE = refused("QUEUE_NOT_FOUND")
BEYOND_B = refused("OFFSET_OUT_OF_RANGE", queue_id=4, offset=9)
BEYOND_C = refused("OFFSET_OUT_OF_RANGE", queue_id=2, offset=8)
LEASED = refused("CONSUMPTION_CONFLICT")
OWNED_B, OWNED_C = (refused("QUEUE_NOT_OWNED", queue_id=each) for each in (4, 2))
NOT_HIS = refused("FORBIDDEN")


@pytest.mark.parametrize(
    ("b", "c", "told"),
    [
        (BEYOND_B, BEYOND_C, BEYOND_C),
        (OWNED_B, OWNED_C, OWNED_B),
        (OWNED_B, BEYOND_C, BEYOND_C),
        (BEYOND_B, OWNED_C, BEYOND_B),
        (LEASED, OWNED_C, LEASED),
        (STALE, OWNED_C, STALE),
        (BEYOND_B, NO_QUEUE, NO_QUEUE),
        (BEYOND_B, NOT_HIS, NOT_HIS),
    ],
)
async def test_of_several_refusals_that_of_a_lone_node_is_told(
    b: CallAnswer, c: CallAnswer, told: CallAnswer
) -> None:
    """Of queue 4 there are two rows, of which the first has an offset that is there."""
    answer, _ = await commit((4, 1), (2, 8), (1, 1), (4, 9), trials={"b": b, "c": c})
    assert answer == (told.status, msgspec.json.decode(told.body))


@pytest.mark.parametrize(
    "row",
    [
        {"queue_id": 1, "offset": -1},
        {"queue_id": 1},
        {"queue_id": 1, "offset": 1, "more": 1},
        {"queue_id": 1, "offset": 2**63},
        {"queue_id": "1", "offset": 1},
    ],
)
async def test_a_row_that_is_none_is_refused_with_the_whole_body(row: dict[str, object]) -> None:
    """Its place is one in the request, which no part has."""
    answer, shards = await commit((0, 1), (1, 1), (2, 1), more=[row])
    assert (answer, shards.asked) == (None, [])


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(AWAY, "SHARD_UNAVAILABLE"), (CUT, "RELAY_INTERRUPTED"), (BUSY, "SYSTEM_BUSY")],
)
@pytest.mark.parametrize("is_trial", [True, False])
async def test_rows_of_a_shard_that_did_not_do_it_are_told_with_the_reason(
    outcome: CallAnswer | CurlewError, code: str, is_trial: bool
) -> None:
    lost: dict[str, Outcome] = {"b": outcome}
    trials, commits = (lost, None) if is_trial else (None, lost)
    answer, shards = await commit((4, 2), (0, 1), (1, 3), trials=trials, commits=commits)
    assert answer is not None
    status, found = answer
    assert (status, found["offsets"], found["partial"]) == (207, rows((0, 1)), ["b"])
    assert [(each["queue_id"], each["offset"]) for each in found["refused"]] == [(4, 2), (1, 3)]
    assert {each["code"] for each in found["refused"]} == {code}
    assert [tries for shard, tries, _ in shards.asked if shard == "b"] == [True] + (
        [] if is_trial else [False]
    )


async def test_a_refusal_behind_the_trial_is_told_of_its_rows() -> None:
    answer, _ = await commit((0, 1), (1, 1), (2, 1), commits={"b": STALE, "c": GONE})
    assert answer is not None
    status, found = answer
    assert (status, found["partial"]) == (207, ["b", "c"])
    codes = [(each["queue_id"], each["code"], each["detail"]) for each in found["refused"]]
    assert codes == [(1, "STALE_GENERATION", "it is 3"), (2, "TOPIC_NOT_FOUND", "deleted")]


async def test_where_no_shard_does_it_the_whole_is_refused() -> None:
    with pytest.raises(ShardUnavailable, match="reached"):
        await commit((0, 1), (1, 1), trials={"a": AWAY, "b": AWAY})
    answer, _ = await commit((0, 1), (1, 1), commits={"a": STALE, "b": STALE})
    assert answer is not None
    assert (answer[0], answer[1]["code"]) == (409, "STALE_GENERATION")


async def test_a_node_of_an_older_version_is_told_of_no_offset_and_is_partial() -> None:
    """It knows nothing of what is asked, and would commit what a body has."""
    unknown = CallAnswer(422, [], b'{"code":"INVALID_ARGUMENT","detail":"too short"}')
    answer, shards = await commit((0, 5), (3, 5), query=b"force=true", trials={"b": unknown})
    assert answer is not None
    status, found = answer
    assert (status, found["partial"], found["refused"]) == (207, ["b"], [])
    told = {(shard, tries): own for shard, tries, own in shards.asked if shard != "a"}
    assert told == {("b", True): [], ("c", True): [], ("c", False): []}
    with pytest.raises(ShardUnavailable):
        await commit((0, 5), query=b"force=true", trials={"a": AWAY, "b": unknown, "c": AWAY})


def test_effects_of_all_shards_are_told() -> None:
    parts = parts_of(b'{"offsets":[]}', ("offsets",), str)
    ended = {"code": "LEASES_END", "detail": "d", "count": 1}
    documents = {
        "b": done(rows((1, 2)), effects=[ended]),
        "a": done(rows((0, 1)), effects=[ended]),
    }
    whole = merged(parts, documents, {})
    assert whole == done(rows((0, 1), (1, 2)), effects=[ended, ended])
