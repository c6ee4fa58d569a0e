"""Members of consumer groups in pull mode: heartbeat, leaving, rebalances, queue locks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, Query, Request, Response

from app.api.access.seen_conflicts import seen_conflicts
from app.api.aims.across import Kept
from app.api.control.dependencies import Services, WithAccess, WithServices, json_body
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import deleted, dry_run_answer
from app.api.control.schemas.member_schemas import (
    HeartbeatAnswer,
    HeartbeatBody,
    LeavingDocument,
    LockAnswer,
    LockBody,
    MemberAnswer,
    MemberList,
    RebalanceDocument,
    RebalanceList,
    UnlockAnswer,
    UnlockBody,
)
from app.api.dataplane.client_watch import unless_gone
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.http.parameters import wait_s_of
from app.api.large_documents import answer_of
from app.api.operations.asked_work import is_share_asked
from app.api.operations.operation import Action, Answer, Body
from app.api.telemetry.callers import USER_AGENT_CHARS_MAX, address_of
from app.broker.figures.clients import Caller
from app.broker.members.member_values import MemberShare
from app.domain.access.actions import Kind
from app.domain.consumers.membership import QueueName
from app.domain.errors import QueueNotOwned

router = OperationRouter("members")

_SOME: Final = Answer("Some of the queues; `refused` has the others")


@router.serve(
    "PUT /v1/groups/{group}/members/{client_id}",
    "Join a group, or stay in it: the heartbeat of a member",
    needs={"group": Action.SUB},
    makes=("group",),
    body=Body(
        HeartbeatBody,
        required=True,
        examples={
            "join": {"subscriptions": [{"topic": "orders"}], "generation": 0},
            "join with a filter": {
                "subscriptions": [{"topic": "orders", "filter": "created || paid"}],
                "strategy": "averagely",
                "generation": 0,
            },
        },
    ),
    problems=(404, 409, 429),
    across=Kept(),
)
async def put_member(
    group: str,
    client_id: str,
    request: Request,
    services: WithServices,
    access: WithAccess,
    body: Annotated[HeartbeatBody, Depends(json_body(HeartbeatBody))],
    wait: Annotated[
        str | None, Query(description="seconds, or a duration like 20s, to wait for a change")
    ] = None,
    force: Annotated[
        bool,
        Query(
            description="join although the group leases one of the topics: the leases end, and "
            "`effects` says which"
        ),
    ] = False,
    replace_subscription: Annotated[
        bool,
        Query(description="read with these filters although the group has another one"),
    ] = False,
    dry_run: WithDryRun = None,
) -> HeartbeatAnswer:
    """Answer the member's share of the queues; with `wait`, when it differs from the known one.

    A group that leases a topic shares out no queues of it: 409 `CONSUMPTION_CONFLICT`. A dry run
    waits for nothing. In a cluster each shard says where its queues begin: those of a shard that
    does not answer are left out of `assigned`, stay the member's, and the shard is in `partial`.
    """
    limits, members = services.limits, services.broker.members
    wait_s = 0.0 if wait is None else wait_s_of(wait, limits.wait_seconds_max)
    beat = body.heartbeat(wait_s, force=force, replace_subscription=replace_subscription)
    beat = replace(beat, profile=replace(beat.profile, principal=access.caller.name))
    named = [*beat.profile.topics, *(each.topic for each in beat.profile.queues)]
    await _check_caller(services, access, group, client_id, named)
    services.to_make(access, Kind.GROUP, group)
    if force or replace_subscription:
        access.require(Action.UPDATE, Kind.GROUP, group)
    if is_dry_run(dry_run):
        share = await members.preview_heartbeat(group, client_id, beat)
        return _answer(services, access, group, client_id, share, tries=True)
    if is_share_asked(request.scope):
        share = await members.share(group, client_id, beat)
        return _answer(services, access, group, client_id, share, tries=False)
    agent = request.headers.get("user-agent", "")[:USER_AGENT_CHARS_MAX]
    caller = Caller(address_of(request.scope), agent, access.caller.name)

    async def start(gone: Callable[[], bool]) -> MemberShare:
        return await members.heartbeat(group, client_id, beat, gone)

    if wait_s > 0:
        share = await unless_gone(request.receive, access, start, lambda _: None)
    else:
        share = await start(lambda: False)
    topics = members.filters_of(group, client_id)
    services.broker.clients.consumes(group, topics, "heartbeat", client_id, caller)
    return _answer(services, access, group, client_id, share, tries=False)


def _answer(
    services: Services,
    access: WithAccess,
    group: str,
    client_id: str,
    share: MemberShare,
    *,
    tries: bool,
) -> HeartbeatAnswer:
    share = replace(share, conflicts=seen_conflicts(access, share.conflicts))
    lease_ms = services.limits.member_lease_ms
    answer = MemberAnswer.of(group, client_id, share, lease_ms)
    return HeartbeatAnswer(**answer.model_dump(), dry_run=tries)


@router.serve(
    "DELETE /v1/groups/{group}/members/{client_id}",
    "Leave a group",
    needs={"group": Action.SUB},
    status=204,
    answers={200: dry_run_answer(LeavingDocument)},
)
async def delete_member(
    group: str,
    client_id: str,
    services: WithServices,
    access: WithAccess,
    dry_run: WithDryRun = None,
) -> Response:
    """The member's queues are free at once; it has committed before."""
    await services.claim_client(access, group, client_id)
    tries = is_dry_run(dry_run)
    members = services.broker.members
    await members.leave(group, client_id, is_dry_run=tries)
    if not tries:
        return Response(status_code=204)
    return deleted(LeavingDocument.of_member(client_id, await members.describe(group)))


@router.serve(
    "GET /v1/groups/{group}/members",
    "The members of a group and their queues",
    needs={"group": Action.GET},
    answers={200: Answer(content=MemberList)},
)
async def list_members(group: str, services: WithServices, access: WithAccess) -> Response:
    """Who reads what, and what is in conflict; of the topics that the caller may know of."""
    found = await services.broker.members.describe(group)
    names = {name.topic for name in found.membership.queues}
    names |= {topic for member, _ in found.shares for topic in member.profile.topics}
    topics = frozenset(access.visible(Action.GET, Kind.TOPIC, names))
    found = replace(found, conflicts=seen_conflicts(access, found.conflicts))
    return await answer_of(MemberList.of, group, found, topics)


@router.serve(
    "GET /v1/groups/{group}/rebalances",
    "Why and when queues were allocated anew",
    needs={"group": Action.GET},
)
async def list_rebalances(group: str, services: WithServices) -> RebalanceList:
    """The newest `rebalance_history_max` rebalances, newest first."""
    history = await services.broker.members.history(group)
    return RebalanceList(group=group, rebalances=[RebalanceDocument.of(each) for each in history])


@router.serve(
    "POST /v1/groups/{group}/queues:lock",
    "Lock queues for ordered consumption, or renew the locks",
    needs={"group": Action.SUB},
    body=Body(
        LockBody,
        required=True,
        examples={
            "lock one": {
                "client_id": "m1",
                "generation": 3,
                "queues": [{"topic": "orders", "queue_id": 0}],
            }
        },
    ),
    answers={207: _SOME},
    problems=(409,),
)
async def lock_queues(
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[LockBody, Depends(json_body(LockBody))],
    response: Response,
    dry_run: WithDryRun = None,
) -> LockAnswer:
    """Only the owner of a queue can lock it, and only while no other member's lock is running."""
    names = [each.name for each in body.queues]
    await _check_caller(services, access, group, body.client_id, [each.topic for each in names])
    tries = is_dry_run(dry_run)
    locking = await services.broker.queue_locks.lock(
        group, body.client_id, body.generation, names, is_dry_run=tries
    )
    if not locking.locked:
        raise _none(locking.refused)
    response.status_code = 207 if locking.refused else 200
    return LockAnswer.of(locking, services.limits.queue_lock_ms, is_dry_run=tries)


@router.serve(
    "POST /v1/groups/{group}/queues:unlock",
    "Unlock queues",
    needs={"group": Action.SUB},
    body=Body(
        UnlockBody,
        required=True,
        examples={
            "unlock one": {
                "client_id": "m1",
                "queues": [{"topic": "orders", "queue_id": 0}],
            }
        },
    ),
    answers={207: _SOME},
    problems=(409,),
)
async def unlock_queues(
    group: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[UnlockBody, Depends(json_body(UnlockBody))],
    response: Response,
    dry_run: WithDryRun = None,
) -> UnlockAnswer:
    """A queue without a lock counts as unlocked; one that another member has locked is refused."""
    names = [each.name for each in body.queues]
    await _check_caller(services, access, group, body.client_id, [each.topic for each in names])
    tries = is_dry_run(dry_run)
    locking = await services.broker.queue_locks.unlock(
        group, body.client_id, names, is_dry_run=tries
    )
    if not locking.locked:
        raise _none(locking.refused)
    response.status_code = 207 if locking.refused else 200
    return UnlockAnswer.of(locking, is_dry_run=tries)


async def _check_caller(
    services: Services, access: WithAccess, group: str, client_id: str, topics: Sequence[str]
) -> None:
    """Raise unless the caller may read the topics, and act as the client."""
    access.require_each(Action.SUB, Kind.TOPIC, topics)
    await services.claim_client(access, group, client_id)


def _none(refused: tuple[tuple[QueueName, str], ...]) -> QueueNotOwned:
    name, reason = refused[0]
    return QueueNotOwned(
        f"none of the {len(refused)} queues: queue {name.queue_id} of topic {name.topic!r} is "
        f"{reason.replace('_', ' ')}",
        hint="lock what the heartbeat assigns; a lock of another member ends with its lease",
        fields={"topic": name.topic, "queue_id": name.queue_id, "reason": reason},
    )
