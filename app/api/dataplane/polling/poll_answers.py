"""The answer to a poll: JSON with the messages, or JSON and one frame for each queue.

The frames are parts of `multipart/mixed`. The first part is the JSON answer without messages; each
part says its length, so that a reader need not look for the boundary within frames.
"""

import secrets
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import UNSET

from app.api.dataplane.polling.shapes import (
    AssignedQueueView,
    CommittedQueueView,
    ConflictValueView,
    ConflictView,
    PendingQueueView,
    PollAnswer,
    PolledQueueView,
    PollStatus,
    QueueNameView,
    RefusedEntryView,
    TakenAnswer,
)
from app.api.dataplane.settling import view_of_settled
from app.api.formats import media
from app.api.formats.rendering import delivered_views, piece_views, record_views
from app.api.formats.wire import DeliveredMessage, GapView, MessageView, encode_line
from app.api.http.errors import shortened
from app.api.naming.request_namespace import shown, shown_text
from app.broker import Broker
from app.broker.polling.poll_values import PollResult, QueuePart, Refused, Taken
from app.domain.consumers.membership import Conflict
from app.store import KnownViews, ReadResult, as_buffers, in_one_piece
from app.store.formats.frame.batch_frame import encode_answer, encode_answer_columns

_BOUNDARY_BYTES: Final = 16
_PART_BYTES_MIN: Final = 64 * 1024
"""On average, so that parts are sent as they are."""

_FRAME_HEAD: Final = (
    b"\r\n--%b\r\nContent-Type: " + media.FRAMES.encode() + b"\r\nContent-Length: %d\r\n"
    b"MQ-Topic: %b\r\nMQ-Queue-Id: %d\r\nMQ-Next-Offset: %d\r\n\r\n"
)


_NOTHING: Final = 0, 0
"""Messages and bytes of a topic of which no queue has come yet."""


class Given(NamedTuple):
    """Messages and bytes of bodies that an answer has of one topic."""

    topic: str
    messages: int
    size: int


class PollAnswers:
    """Makes the answers of one node. Event loop."""

    def __init__(self, broker: Broker, lease_ms: int) -> None:
        self._broker = broker
        self._lease_ms = lease_ms

    def json(
        self, group: str, client_id: str, result: PollResult, *, force_base64: bool
    ) -> tuple[bytes, list[Given]]:
        """The body, and what it has of each topic."""
        messages: list[MessageView] = []
        given: list[Given] = []
        for topic, parts in groupby(result.parts, _topic_of):
            reads = [read.records for part in parts for read in part.reads if read.records]
            if reads:
                views, size = self._views(reads, force_base64=force_base64)
                messages += views
                given.append(Given(topic, len(views), size))
        retries, of_retries = self._retries(result, force_base64=force_base64)
        answer = self._answer(group, client_id, result, messages, retries)
        return encode_line(answer), given + of_retries

    def _views(
        self, reads: Sequence[Sequence[memoryview]], *, force_base64: bool
    ) -> tuple[list[MessageView], int]:
        """The messages of one topic, and the bytes of all bodies."""
        store_id = self._broker.store.store_id
        piece = in_one_piece(reads)
        found = None if piece is None else piece_views(piece, store_id, force_base64=force_base64)
        if found is not None:
            return found
        records = [record for read in reads for record in read]
        return record_views(
            records, store_id, self._broker.puller.decode, force_base64=force_base64
        )

    def taken(self, taken: Taken) -> bytes:
        """What was done for a member that another node answers."""
        return encode_line(
            TakenAnswer(
                [CommittedQueueView(*each.queue, each.offset) for each in taken.committed],
                [_refused_view(each) for each in taken.refused],
                [view_of_settled(each) for each in taken.settled],
            )
        )

    def frames(
        self, group: str, client_id: str, result: PollResult, *, force_base64: bool = False
    ) -> tuple[bytes, list[bytes | memoryview], list[Given]]:
        """The content type, the body in parts, and what it has of each topic."""
        boundary = secrets.token_hex(_BOUNDARY_BYTES).encode()
        retries, given = self._retries(result, force_base64=force_base64)
        head = encode_line(self._answer(group, client_id, result, [], retries))
        parts: list[bytes | memoryview] = [
            b"--%b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (boundary, media.JSON.encode(), len(head), head)
        ]
        counts: dict[str, tuple[int, int]] = {}
        for part in result.parts:
            frame = _frame_of(part.reads)
            if frame is None:
                continue
            messages, size, frame_head, records = frame
            topic, queue_id = part.queue
            names = boundary, size, shown(topic).encode(), queue_id, part.offset
            parts.append(_FRAME_HEAD % names + frame_head)
            parts += records
            count, total = counts.get(topic, _NOTHING)
            counts[topic] = count + messages, total + size
        given += [Given(topic, *of_topic) for topic, of_topic in counts.items()]
        parts.append(b"\r\n--" + boundary + b"--\r\n")
        return b"multipart/mixed; boundary=" + boundary, _in_few(parts), given

    def _retries(
        self, result: PollResult, *, force_base64: bool
    ) -> tuple[list[DeliveredMessage], list[Given]]:
        if not result.retries:
            return [], []
        views, _ = delivered_views(
            result.retries, self._broker.store.store_id, force_base64=force_base64
        )
        given = [
            Given(delivery.message.topic, 1, len(delivery.message.body))
            for delivery in result.retries
        ]
        return views, given

    def _answer(
        self,
        group: str,
        client_id: str,
        result: PollResult,
        messages: list[MessageView],
        retries: list[DeliveredMessage],
    ) -> PollAnswer:
        share = result.share
        assignment, offsets = share.assignment, share.offsets
        return PollAnswer(
            group=shown(group),
            client_id=client_id,
            generation=assignment.generation,
            assignment_id=assignment.assignment_id,
            lease_ms=self._lease_ms,
            mode=share.mode,
            strategy=share.strategy,
            members=list(share.client_ids),
            assigned=[
                AssignedQueueView(topic, queue_id, since, offsets[topic, queue_id])  # type: ignore[index]
                for topic, queue_id, since in assignment.assigned
                if (topic, queue_id) in offsets
            ],
            revoked=[QueueNameView(*name) for name in assignment.revoked],
            pending=[PendingQueueView(*each) for each in assignment.pending],
            conflicts=[_conflict_view(each) for each in share.conflicts],
            effects=list(share.effects),
            messages=messages,
            queues=[_queue_view(part) for part in result.parts],
            retries=retries,
            committed=[CommittedQueueView(*each.queue, each.offset) for each in result.committed],
            refused=[_refused_view(each) for each in result.refused],
            poll_again_ms=result.poll_again_ms,
            settled=[view_of_settled(each) for each in result.settled] or UNSET,
            paused=result.is_paused or UNSET,
            partial=list(share.elsewhere) or UNSET,
        )


_Frame = tuple[int, int, bytes, list[bytes | memoryview]]
"""Messages of one part of an answer, its bytes, its head, and the records behind that."""


def _frame_of(reads: Sequence[ReadResult]) -> _Frame | None:
    """What was read of one queue; None: no message."""
    if len(reads) > 1:
        reads = [read for read in reads if read.records]
    if not reads or not reads[0].records:
        return None
    found, offsets, hashes = reads[0][:3]
    if len(reads) > 1:
        found = [record for read in reads for record in read.records]
        hashes = [each for read in reads for each in read.tag_hashes]
    count = len(found)
    if isinstance(found, KnownViews):
        records, total = found.buffers(), found.total_bytes
        head = encode_answer_columns(found.columns(), records, count, total, offsets[0])
    else:
        sizes, records = as_buffers(found)
        head, total = encode_answer(sizes, hashes, records, offsets[0]), sum(map(len, records))
    return count, len(head) + total, head, records


def _in_few(parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Small parts in one: to copy them costs less than to write each by itself."""
    is_small = sum(map(len, parts)) < _PART_BYTES_MIN * len(parts)
    return [b"".join(parts)] if is_small else parts


def _topic_of(part: QueuePart) -> str:
    return part.queue.topic


def _queue_view(part: QueuePart) -> PolledQueueView:
    gaps = [GapView(*gap) for read in part.reads if read.gaps for gap in read.gaps]
    status: PollStatus = part.status  # type: ignore[assignment]
    return PolledQueueView(
        *part.queue, status, part.offset, part.min_offset, part.max_offset, gaps or UNSET
    )


def _conflict_view(conflict: Conflict) -> ConflictView:
    values = [ConflictValueView(shown_text(value), list(ids)) for value, ids in conflict.values]
    return ConflictView(conflict.kind, conflict.topic, shown_text(conflict.detail), values)


def _refused_view(refused: Refused) -> RefusedEntryView:
    error = refused.error
    return RefusedEntryView(
        *refused.queue, refused.offset, error.code, shortened(shown_text(error.detail))
    )
