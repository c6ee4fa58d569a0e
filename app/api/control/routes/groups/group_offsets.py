"""Offsets of consumer groups: read, commit, reset, forget, and named snapshots of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, Query, Request, Response

from app.api.aims import merges
from app.api.aims.across import Committed, Copied, InEach, Together
from app.api.aims.of_names import POSITIONS
from app.api.control.dependencies import WithAccess, WithServices, json_body
from app.api.control.log_changes import WithBeginning
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.offset_schemas import (
    AllGroupOffsets,
    CommitBody,
    CommitPartAnswer,
    NoRowsBody,
    ResetAllBody,
    ResetAnswer,
    ResetBody,
    RestoreBody,
    SnapshotAnswer,
    SnapshotDocument,
    SnapshotList,
    TopicQueueOffset,
)
from app.api.control.schemas.schemas import CommitAnswer, GroupOffsets, Partly
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.operations.asked_work import first_use_of, is_copy_asked, is_read_asked
from app.api.operations.operation import Action, Answer, Body, Json
from app.broker.results import Committed as CommittedOffsets
from app.broker.results import QueuePosition
from app.domain.access.actions import Kind, Target
from app.domain.access.caller import not_permitted
from app.domain.positions import OffsetSnapshot

router = OperationRouter("offsets")

_TWO: Final = [{"queue_id": 0, "offset": 120}, {"queue_id": 1, "offset": 98}]
_RESETS: Final[dict[str, Json]] = {
    "read all again": {"to": "earliest"},
    "go back to a time": {"to": "timestamp", "timestamp_ms": 1_764_000_000_000},
    "skip ten messages of each queue": {"to": "shift", "shift": 10},
}
_PARTLY: Final = {207: Answer("Not in all shards: `partial` names the others", ResetAnswer)}


@router.serve(
    "GET /v1/groups/{group}/offsets",
    "Committed offsets of a group in all topics",
    needs={"group": Action.GET},
    across=Together(merges.offsets_of_group),
)
async def list_group_offsets(
    group: str, services: WithServices, access: WithAccess
) -> AllGroupOffsets:
    """Per topic that the caller may know of and queue, the offset below which everything is done
    for the group."""
    rows = await services.broker.offset_admin.all_committed(group)
    shown = set(access.visible(Action.GET, Kind.TOPIC, {row.topic for row in rows}))
    offsets = [TopicQueueOffset.at(row) for row in rows if row.topic in shown]
    return AllGroupOffsets(group=group, offsets=offsets)


@router.serve(
    "GET /v1/groups/{group}/offsets/{topic}",
    "Committed offsets of a group in a topic",
    needs={"group": Action.GET, "topic": Action.GET},
    across=Together(merges.offsets),
)
async def get_group_offsets(group: str, topic: str, services: WithServices) -> GroupOffsets:
    """Per queue, the offset below which everything is done for the group."""
    return GroupOffsets.of(group, topic, await services.broker.offset_admin.committed(group, topic))


_body_of_rows = json_body(CommitBody)
_body_of_none = json_body(NoRowsBody)


async def _commit_body(request: Request) -> CommitBody:
    """Of a request of another node to read a topic from now on, no rows."""
    if not is_read_asked(request.scope):
        return await _body_of_rows(request)
    await _body_of_none(request)
    return CommitBody.model_construct(offsets=[])


@router.serve(
    "PUT /v1/groups/{group}/offsets/{topic}",
    "Commit offsets of a group in a topic",
    needs={"group": Action.SUB, "topic": Action.SUB},
    body=Body(
        CommitBody,
        required=True,
        examples={"commit two queues": {"offsets": _TWO}},
    ),
    answers={
        207: Answer(
            "Not in all shards: `partial` names the others, and `refused` their queues, with why",
            CommitPartAnswer,
        )
    },
    problems=(409, 416),
    aim=POSITIONS,
    across=Committed(),
)
async def commit_group_offsets(
    group: str,
    topic: str,
    request: Request,
    services: WithServices,
    access: WithAccess,
    begins: WithBeginning,
    body: Annotated[CommitBody, Depends(_commit_body)],
    force: Annotated[
        bool,
        Query(
            description="commit although the group leases the topic: its leases end, `effects` "
            "says which. The body's `force` is another: it sets offsets backwards too, as a "
            "reset does, and leaves leases and members as a reset leaves them"
        ),
    ] = False,
    dry_run: WithDryRun = None,
) -> CommitAnswer:
    """Commit, and answer what is committed now. Offsets never go back unless the body's `force`
    says so.

    Queues that a member owns are committed by that member only, at the present generation. A group
    that leases the topic does not commit in it: 409 `CONSUMPTION_CONFLICT`. A refusal commits
    nothing. In a cluster the answer has the queues of the shards of the body's queues, and where
    one of these shards does not answer the status is 207; commit the `refused` rows again.
    """
    if force or body.force:
        access.require(Action.UPDATE, Kind.GROUP, group)
    if body.committer is not None:
        await services.claim_client(access, group, body.committer.client_id)
    rows = [QueuePosition(entry.queue_id, entry.offset) for entry in body.offsets]
    tries = is_dry_run(dry_run)
    if (force or body.force) and not tries:
        await begins()
    broker = services.broker
    if is_read_asked(request.scope):
        read = await broker.offset_commits.take_over(group, topic, is_dry_run=tries)
        return CommitAnswer.of_commit(group, topic, read, is_dry_run=tries)
    commit = broker.offset_commits.preview_commit if tries else broker.offset_commits.commit
    committed = await commit(
        group, topic, rows, force=body.force, take_over=force, committer=body.committer
    )
    return CommitAnswer.of_commit(group, topic, committed, is_dry_run=tries)


@router.serve(
    "DELETE /v1/groups/{group}/offsets/{topic}",
    "Forget a group's offsets in a topic",
    needs={"group": Action.UPDATE, "topic": Action.GET},
    status=204,
    answers={200: dry_run_answer(CommitAnswer), 207: Answer("Not in all shards", Partly)},
    problems=(409,),
    across=InEach(merges.committed, tries_first=True, forgets_first_use=True),
)
async def delete_group_offsets(
    group: str,
    topic: str,
    services: WithServices,
    request: Request,
    dry_run: WithDryRun = None,
) -> Response:
    """For a subscription that is not used any more; refused while a member reads the topic."""
    tries, admin = is_dry_run(dry_run), services.broker.offset_admin
    asked = first_use_of(request.scope)
    first_use_ms = await admin.first_use_ms(group, topic) if asked is None else asked.at_ms
    offsets = await admin.delete(group, topic, first_use_ms, is_dry_run=tries)
    forgotten = CommittedOffsets(offsets, effects=())
    return deleted(CommitAnswer.of_commit(group, topic, forgotten, is_dry_run=tries))


@router.serve(
    "POST /v1/groups/{group}/offsets/{topic}:reset",
    "Set a group's offsets in a topic",
    needs={"group": Action.UPDATE, "topic": Action.GET},
    body=Body(ResetBody, required=True, examples=_RESETS),
    answers=_PARTLY,
    problems=(409,),
    across=InEach(merges.resets, tries_first=True),
)
async def reset_group_offsets(
    group: str,
    topic: str,
    services: WithServices,
    body: Annotated[ResetBody, Depends(json_body(ResetBody))],
    dry_run: WithDryRun = None,
) -> ResetAnswer:
    """Backwards or forwards, also while the group is at work: leases end, members are told. Each
    shard does it for its queues; when one does not answer the status is 207."""
    tries = is_dry_run(dry_run, body.asks_for_dry_run)
    request = body.request(is_dry_run=tries)
    result = await services.broker.offset_admin.reset(group, [topic], request)
    return ResetAnswer.of(group, tries, result)


@router.serve(
    "POST /v1/groups/{group}/offsets:reset",
    "Set a group's offsets in all its topics",
    needs={"group": Action.UPDATE},
    body=Body(ResetAllBody, required=True, examples=_RESETS),
    answers=_PARTLY,
    problems=(409,),
    across=InEach(merges.resets, tries_first=True, topics="topics"),
)
async def reset_all_group_offsets(
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[ResetAllBody, Depends(json_body(ResetAllBody))],
    dry_run: WithDryRun = None,
) -> ResetAnswer:
    """As for one topic, in every topic where the group has offsets or members, or in `topics`: in
    all of them, or in none when there is one that the caller may not know of."""
    for topic in body.topics or ():
        access.require(Action.GET, Kind.TOPIC, topic)
    tries = is_dry_run(dry_run, body.asks_for_dry_run)
    request = body.request(is_dry_run=tries)

    def check(topics: Iterable[str]) -> None:
        _require_all(access, topics)

    result = await services.broker.offset_admin.reset(group, body.topics, request, check)
    return ResetAnswer.of(group, tries, result)


# --- snapshots


@router.serve(
    "PUT /v1/groups/{group}/snapshots/{name}",
    "Keep the group's offsets under a name",
    needs={"group": Action.UPDATE},
    status=201,
    answers={200: dry_run_answer(SnapshotAnswer)},
    problems=(409,),
    across=Copied(),
)
async def put_snapshot(
    group: str,
    name: str,
    request: Request,
    services: WithServices,
    access: WithAccess,
    response: Response,
    dry_run: WithDryRun = None,
) -> SnapshotAnswer:
    """A name is used once: a snapshot never changes. At most `offset_snapshots_per_group_max`. What
    was committed in a shard that does not answer may be some seconds old in it."""
    tries, positions = is_dry_run(dry_run), services.broker.offset_admin
    if is_copy_asked(request.scope):
        await positions.write_copy()
        tries = True
    snapshot = await positions.take_snapshot(group, name, is_dry_run=tries)
    if tries:
        response.status_code = 200
    return _snapshot_answer(_seen(access, snapshot), is_dry_run=tries)


def _seen(access: WithAccess, snapshot: OffsetSnapshot) -> OffsetSnapshot:
    """What it has of topics that the caller may know of."""
    names = {row.topic for row in snapshot.offsets}
    shown = set(access.visible(Action.GET, Kind.TOPIC, names))
    if shown == names:
        return snapshot
    rows = tuple(row for row in snapshot.offsets if row.topic in shown)
    return replace(snapshot, offsets=rows)


def _require_all(access: WithAccess, topics: Iterable[str]) -> None:
    """Raise unless the caller may know of each; the refusal names none."""
    if len(access.visible(Action.GET, Kind.TOPIC, names := list(topics))) < len(names):
        raise not_permitted(access.caller, Action.GET, Target(Kind.TOPIC, "*"))


def _snapshot_answer(snapshot: OffsetSnapshot, *, is_dry_run: bool) -> SnapshotAnswer:
    return SnapshotAnswer(**SnapshotDocument.of(snapshot).model_dump(), dry_run=is_dry_run)


@router.serve(
    "GET /v1/groups/{group}/snapshots",
    "Snapshots of a group's offsets",
    needs={"group": Action.GET},
)
async def list_snapshots(group: str, services: WithServices, access: WithAccess) -> SnapshotList:
    """All of them, by name; what they have of topics that the caller may know of."""
    found = await services.broker.offset_admin.snapshots(group)
    return SnapshotList.of(group, [_seen(access, each) for each in found])


@router.serve(
    "GET /v1/groups/{group}/snapshots/{name}",
    "One snapshot of a group's offsets",
    needs={"group": Action.GET},
)
async def get_snapshot(
    group: str, name: str, services: WithServices, access: WithAccess
) -> SnapshotDocument:
    """The offsets as they were, in the topics that the caller may know of."""
    found = await services.broker.offset_admin.snapshot(group, name)
    return SnapshotDocument.of(_seen(access, found))


@router.serve(
    "POST /v1/groups/{group}/snapshots/{name}:restore",
    "Set a group's offsets to a snapshot",
    needs={"group": Action.UPDATE},
    body=Body(RestoreBody, examples={"only show what would be": {"dry_run": True}}),
    answers=_PARTLY,
    problems=(409,),
    across=InEach(merges.resets, tries_first=True),
)
async def restore_snapshot(
    group: str,
    name: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[RestoreBody, Depends(json_body(RestoreBody))],
    dry_run: WithDryRun = None,
) -> ResetAnswer:
    """A reset to what was; queues that the snapshot does not have stay as they are. Nothing is
    done when it has a topic that the caller may not know of."""
    tries = is_dry_run(dry_run, body.asks_for_dry_run)
    snapshot = await services.broker.offset_admin.snapshot(group, name)
    _require_all(access, {row.topic for row in snapshot.offsets})
    result = await services.broker.offset_admin.restore(group, name, is_dry_run=tries)
    return ResetAnswer.of(group, tries, result)


@router.serve(
    "DELETE /v1/groups/{group}/snapshots/{name}",
    "Forget a snapshot of a group's offsets",
    needs={"group": Action.UPDATE},
    status=204,
    answers={200: dry_run_answer(SnapshotAnswer)},
)
async def delete_snapshot(
    group: str,
    name: str,
    services: WithServices,
    access: WithAccess,
    dry_run: WithDryRun = None,
) -> Response:
    """The offsets themselves stay as they are."""
    tries = is_dry_run(dry_run)
    positions = services.broker.offset_admin
    snapshot = await positions.delete_snapshot(group, name, is_dry_run=tries)
    return deleted(_snapshot_answer(_seen(access, snapshot), is_dry_run=tries))
