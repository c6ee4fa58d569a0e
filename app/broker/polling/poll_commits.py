"""Commits and hand-backs of a poll: each entry is fenced by itself.

The fence is the membership as this node knows it: a commit of an older owner, or with an older
position, is refused and changes nothing. What is taken is in the log before the poll is answered;
SQL has a copy within a second (`OffsetCache`), and before the member leaves or lets a queue go.

What is handed back goes first: a commit that would pass a message whose hand-back was refused is
refused as well, since else nobody would ever get that message again. Not so when the message is
done already: a poll that is repeated, since its answer was lost, commits what it asked for. Event
loop only.
"""

from collections.abc import Sequence

from app.broker.context import Context
from app.broker.groups.group_lookup import refuse_broadcast
from app.broker.groups.groups import Groups
from app.broker.journal.append_future import AppendFuture
from app.broker.members.members import Members
from app.broker.polling.hand_backs import HandBacks
from app.broker.polling.poll_values import (
    CommittedQueue,
    HandBack,
    PollCommit,
    PollRequest,
    Refused,
)
from app.broker.ports import Group
from app.broker.results import QueuePosition
from app.broker.topic_lookup import check_here, find_topic
from app.domain.consumers.membership import Membership, QueueName, QueueState
from app.domain.errors import CurlewError, QueueNotOwned, StaleGeneration


class PollCommits:
    """One per broker."""

    def __init__(
        self, context: Context, groups: Groups, members: Members, hand_backs: HandBacks
    ) -> None:
        self._metadata = context.metadata
        self._groups = groups
        self._members = members
        self._hand_backs = hand_backs

    def are_owned(self, group: str, client_id: str, request: PollRequest) -> bool:
        """Whether this node knows the member as the owner of all queues of which it says something,
        at its positions."""
        queues = [(each.queue, each.since_generation) for each in request.commits]
        queues += [(each.queue, None) for each in request.hand_backs]
        try:
            for queue, since_generation in queues:
                self._check(group, client_id, request.generation, queue, since_generation)
        except CurlewError:
            return False
        return True

    async def take(
        self, group_name: str, client_id: str, request: PollRequest
    ) -> tuple[list[CommittedQueue], list[Refused]]:
        """What is committed then, and what was refused. Raises nothing for one entry alone."""
        refused: list[Refused] = []
        if not (request.commits or request.hand_backs):
            return [], refused
        group = self._metadata.snapshot.groups.get(group_name)
        if group is None:
            error = no_member(client_id, group_name, request.generation)
            handed = [Refused(each.queue, each.queue_offset, error) for each in request.hand_backs]
            return [], handed + _all(request.commits, error)
        if request.hand_backs:
            refused += await self._hand_back(group, client_id, request)
        if not request.commits:
            return [], refused
        left_behind: dict[QueueName, Refused] = {}
        for each in refused:
            if each.is_over:
                continue
            first = left_behind.get(each.queue)
            if first is None or each.offset < first.offset:
                left_behind[each.queue] = each
        committed = await self._commit(group, client_id, request, left_behind, refused)
        return committed, refused

    async def _hand_back(self, group: Group, client_id: str, request: PollRequest) -> list[Refused]:
        refused: list[Refused] = []
        by_topic: dict[str, list[HandBack]] = {}
        for item in request.hand_backs:
            try:
                refuse_broadcast(group)
                self._check(group.name, client_id, request.generation, item.queue, None)
            except CurlewError as error:
                refused.append(Refused(item.queue, item.queue_offset, error))
            else:
                by_topic.setdefault(item.queue.topic, []).append(item)
        for topic, items in by_topic.items():
            refused += await self._hand_backs.take(group, topic, items)
        return refused

    async def _commit(
        self,
        group: Group,
        client_id: str,
        request: PollRequest,
        left_behind: dict[QueueName, Refused],
        refused: list[Refused],
    ) -> list[CommittedQueue]:
        by_topic: dict[str, list[PollCommit]] = {}
        for commit in request.commits:
            try:
                refuse_broadcast(group)
                before = left_behind.get(commit.queue)
                if before is not None and before.offset < commit.offset:
                    raise before.error
                self._check(
                    *(group.name, client_id, request.generation),
                    *(commit.queue, commit.since_generation),
                )
                view = find_topic(self._metadata, commit.queue.topic)
                check_here(view, commit.queue.queue_id)
                self._groups.offsets.check_commit(
                    view, [QueuePosition(commit.queue.queue_id, commit.offset)]
                )
            except CurlewError as error:
                refused.append(Refused(commit.queue, commit.offset, error))
            else:
                by_topic.setdefault(commit.queue.topic, []).append(commit)
        written = [await self._append(group, *each, refused) for each in by_topic.items()]
        for commits, confirmation in zip(by_topic.values(), written, strict=True):
            if confirmation is not None:
                try:
                    await confirmation.wait()
                except CurlewError as error:
                    refused += _all(commits, error)
        return [
            CommittedQueue(QueueName(topic, position.queue_id), position.offset)
            for topic, commits in by_topic.items()
            for position in self._groups.offsets.committed(group.name, topic)
            if any(commit.queue.queue_id == position.queue_id for commit in commits)
        ]

    async def _append(
        self,
        group: Group,
        topic: str,
        commits: Sequence[PollCommit],
        refused: list[Refused],
    ) -> AppendFuture | None:
        rows = [QueuePosition(commit.queue.queue_id, commit.offset) for commit in commits]
        try:
            await self._groups.offsets.until_deleted(group.name, topic)
            return self._groups.commit(group, find_topic(self._metadata, topic), rows)
        except CurlewError as error:
            refused += _all(commits, error)
            return None

    def _check(
        self,
        group: str,
        client_id: str,
        generation: int | None,
        queue: QueueName,
        since_generation: int | None,
    ) -> None:
        """Raise unless the member owns the queue, at the position that it was given last."""
        membership = self._members.last(group) or Membership(group)
        member = membership.members.get(client_id)
        if member is None or not (
            generation is None or member.joined_generation <= generation <= membership.generation
        ):
            raise no_member(client_id, group, generation)
        state = membership.queues.get(queue, QueueState())
        if state.owner != client_id:
            raise QueueNotOwned(
                f"queue {queue.queue_id} of topic {queue.topic!r} is not owned by {client_id!r}",
                hint="read and commit only what the answer to a poll lists",
                fields={"topic": queue.topic, "queue_id": queue.queue_id, "owner": state.owner},
            )
        newest = state.since_generation
        known = generation if since_generation is None else since_generation
        if known is not None and (known < newest or (since_generation or newest) > newest):
            raise StaleGeneration(
                f"queue {queue.queue_id} of topic {queue.topic!r} begins anew with generation "
                f"{newest}: its position was set, or it went to another member and came back",
                hint="drop what was read of it, and read from the offset of the assignment on",
            )


def no_member(client_id: str, group: str, generation: int | None) -> StaleGeneration:
    """What to tell who is taken for dead, or replaced."""
    at = "" if generation is None else f" at generation {generation}"
    return StaleGeneration(
        f"client {client_id!r} is no member of group {group!r}{at}",
        hint="what it held was given to others, who read from the committed offset on",
    )


def _all(commits: Sequence[PollCommit], error: CurlewError) -> list[Refused]:
    return [Refused(commit.queue, commit.offset, error) for commit in commits]
