"""What the connector asks of the service, each with its answer's meaning.

Holds plain values only; see `transport` for connections and retries. Called by `stream`, `batch`
and `stream` on the driver and by `pulling` and `write_task` on the executors.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, quote_plus

from pyspark_curlew.errors import (
    ConnectorError,
    EpochSealed,
    FrameDamaged,
    ProducerFenced,
    ProtocolViolation,
    SequenceBroken,
)
from pyspark_curlew.http.http_options import HttpOptions
from pyspark_curlew.http.reply import Answer
from pyspark_curlew.http.retry import RetryPolicy, TryLater
from pyspark_curlew.http.routes import Routes
from pyspark_curlew.http.transport import Call, Request, Transport, describe, document_of
from pyspark_curlew.wire.frame import CONTENT_TYPE, Frame, media_type_of, parse_frame
from pyspark_curlew.wire.sources import Buffer
from pyspark_curlew.writing.producer_identity import Claim, Producer
from pyspark_curlew.writing.routing import KeyQueues

_JSON: Final = {"Accept": "application/json"}
_PAGE: Final = 1000
TOPICS_MAX: Final = 256
"""Topics that one call for positions takes: the service's `topics_per_look_max`."""
NAMES_BYTES_MAX: Final = 30 * 1024
"""Of their names in one call: the service's `request_target_bytes_max`, less 2 KiB for the rest."""
WAIT_MS_MAX: Final = 60_000
"""How long the service lets a call wait: its `wait_seconds_max`."""


@dataclass(frozen=True, slots=True)
class Pull:
    """What to pull of one queue, at most: from `offset` up to `end_offset` (excluded)."""

    topic: str
    queue: int
    offset: int
    end_offset: int
    max_messages: int
    max_bytes: int
    filter_tags: str | None = None


@dataclass(frozen=True, slots=True)
class Pulled:
    """A frame and what its headers say. `next_offset`: where to go on reading."""

    frame: Frame
    next_offset: int
    store_id: bytes
    gaps: Sequence[tuple[int, int]] = ()
    """What the service could not read in between, start and end (excluded) of each stretch."""


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The wanted offset cannot be read: it lies outside `min_offset` to `max_offset` (excluded)."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue: readable from `min_offset` on, below `max_offset`."""

    min_offset: int
    max_offset: int
    average_bytes: int | None
    """Of a stored message, from the service's sample; None when the queue is empty."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic. `generation` is another number, higher or lower, when it was deleted and made
    anew under its name."""

    generation: int
    queues: Mapping[int, QueueState]


@dataclass(frozen=True, slots=True)
class Positions:
    """Topics as they stand; `state` is the service's token for that."""

    state: str
    topics: Mapping[str, TopicState]
    missing: frozenset[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """How rows are spread over the queues of a topic."""

    queues: int
    messages_per_turn: int
    """Rows in a row for one queue, before the next one's turn; also the most of a request."""
    queue_ids: Sequence[int] | None = None
    """The queues, where they are not the first so many: shards drain."""
    of_keys: KeyQueues | None = None
    """Where keys go meanwhile; None: over those queues, as in a plan of an early service."""


class CurlewClient:
    """Requests to one Curlew address."""

    def __init__(self, options: HttpOptions, policy: RetryPolicy | None = None) -> None:
        self._transport = Transport(options, policy)
        self._once = Transport(options, RetryPolicy(0))
        self._reads_any = options.reads_any
        self._routes: Routes | None = None
        if options.to_leaders or options.reads_any:
            self._routes = Routes(options.endpoints, self._route, reads_any=options.reads_any)

    def topic_names(self) -> list[str]:
        """All topics of the service, by name."""
        names: list[str] = []
        query: dict[str, str | int] = {"page_size": _PAGE}
        while True:
            request = Request("GET", "/v1/topics", query, _JSON)
            document = self._transport.run(
                "listing the topics", request, lambda answer: self._document(answer, "the topics")
            )
            topics = document.get("topics")
            if not isinstance(topics, list):
                raise ProtocolViolation("the list of topics cannot be read")
            names += [str(topic["name"]) for topic in topics]
            token = document.get("next_page_token")
            if not token:
                return names
            query["page_token"] = str(token)

    def open_plan(self, topic: str, messages_per_turn: int) -> Plan:
        """How rows without a producer fill the topic: over the queues that take messages, as those
        of a shard that drains do not. Keys stay in their queue until its keys have moved. Raises
        `TopicNotFound`."""
        queues = self.queue_count(topic)
        route = self._route(topic) or {}
        rows = route.get("queues")
        if not isinstance(rows, list) or len(rows) != queues:  # it tells no routes, or not this key
            return Plan(queues, messages_per_turn)
        try:
            taken = [int(row["queue_id"]) for row in rows if "w" in row["perm"]]
            keeps = [int(row["queue_id"]) for row in rows if row.get("takes", "all") != "none"]
        except (AttributeError, KeyError, TypeError, ValueError):
            return Plan(queues, messages_per_turn)
        if not taken or len(taken) == queues:  # where no queue takes any the service says why
            return Plan(queues, messages_per_turn)
        of_keys = _of_keys(route.get("write_queues"), keeps, taken)
        return Plan(len(taken), messages_per_turn, taken, of_keys)

    def queue_count(self, topic: str) -> int:
        """How many queues the topic has; raise `TopicNotFound`, with the service's hint."""
        request = Request("GET", f"/v1/topics/{_quoted(topic)}", {}, _JSON)

        def read(answer: Answer) -> int:
            queues = self._document(answer, f"topic {topic!r}").get("queues")
            if not isinstance(queues, int):
                raise ProtocolViolation(f"topic {topic!r} cannot be read: {_shown(answer.body)}")
            return queues

        return self._transport.run(f"reading topic {topic!r}", request, read)

    def positions(
        self, topics: Sequence[str], known: str | None = None, wait_ms: int = 0
    ) -> Positions:
        """Where the topics stand; with `wait_ms`, once that differs from the state `known`.

        All below the ends is on the medium by then: what is planned up to them is there after a
        power loss, also in topics that are not synced with every message.

        More topics than one call takes are asked for in several calls, which do not wait.
        """
        parts = calls_for(topics)
        if len(parts) == 1:
            return self._positions(parts[0], known, min(wait_ms, WAIT_MS_MAX))
        found = [self._positions(part, None, 0) for part in parts]
        return Positions(
            state=" ".join(part.state for part in found),
            topics={name: state for part in found for name, state in part.topics.items()},
            missing=frozenset(name for part in found for name in part.missing),
        )

    def _positions(self, topics: Sequence[str], known: str | None, wait_ms: int) -> Positions:
        query: dict[str, str | int] = {"topics": ",".join(topics), "durability": "flushed"}
        if known is not None and wait_ms:
            query |= {"known": known, "wait": f"{wait_ms}ms"}
        request = Request("GET", "/v1/topics:positions", query, _JSON, wait_s=-(-wait_ms // 1000))

        def read(answer: Answer) -> Positions:
            self._transport.require_success(answer, "the positions of the topics")
            return _positions_of(answer.body)

        return self._transport.run("asking where the topics stand", request, read)

    def offsets(self, topic: str, at: str) -> dict[int, int]:
        """Each queue's offset: `earliest`, `latest` (one past the last), or from a time on (ms)."""
        request = Request("GET", f"/v1/topics/{_quoted(topic)}/offsets", {"at": at}, _JSON)

        def read(answer: Answer) -> dict[int, int]:
            self._transport.require_success(answer, f"topic {topic!r}")
            return _offsets_of(answer.body)

        return self._transport.run(f"asking for the {at} offsets of topic {topic!r}", request, read)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that the group has committed; none if it is not known."""
        request = Request("GET", _group_path(group, topic), {}, _JSON)

        def read(answer: Answer) -> dict[int, int]:
            if answer.status == 404 and "GROUP" in str(document_of(answer.body).get("code")):
                return {}
            self._transport.require_success(answer, f"group {group!r} in topic {topic!r}")
            return _offsets_of(answer.body)

        return self._transport.run(f"reading the offsets of group {group!r}", request, read)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit next offsets, in one attempt: it is for monitoring, and there is a next time."""
        rows = [{"queue_id": queue, "offset": offset} for queue, offset in offsets.items()]
        request = _with_document("PUT", _group_path(group, topic), {"offsets": rows})
        self._once.run(
            f"committing for group {group!r}",
            request,
            lambda answer: self._once.require_success(answer, f"group {group!r}"),
        )

    def pull(self, wanted: Pull, wait_s: int = 0) -> Pulled | OutOfRange:
        """Messages of one queue; the service may wait for the first one.

        The service need not look at the messages, for the frame is checked here. Where it is
        damaged, the service is asked to look.
        """

        def attempt() -> Pulled | OutOfRange:
            with suppress(FrameDamaged):
                straight = self._straight(wanted, wait_s)
                if straight is not None:
                    return straight
                return self._found(wanted, self._transport.once(self._request(wanted, wait_s)))
            seen = self._request(wanted, wait_s, checksum="crc32-verified")
            try:
                return self._found(wanted, self._transport.once(seen))
            except FrameDamaged as damage:
                raise TryLater(str(damage)) from None

        what = f"pulling topic {wanted.topic!r} queue {wanted.queue} from offset {wanted.offset}"
        return self._transport.repeat(what, attempt)

    def _straight(self, wanted: Pull, wait_s: int) -> Pulled | OutOfRange | None:
        """The answer of the node of the queue; None: it is to be asked for as everything else."""
        node = self._node(wanted)
        if node is None or self._routes is None:
            return None
        try:
            with closing(self._transport.begin(self._request(wanted, wait_s), node)) as call:
                answer = call.answer()
        except TryLater:
            self._routes.is_away(node)
            return None
        return self._found(wanted, answer) if answer.status in {200, 410, 416} else None

    def _node(self, wanted: Pull) -> str | None:
        return None if self._routes is None else self._routes.node(wanted.topic, wanted.queue)

    def _request(self, wanted: Pull, wait_s: int, *, checksum: str = "crc32") -> Request:
        query: dict[str, str | int] = {
            "offset": wanted.offset,
            "until_offset": wanted.end_offset,
            "max_messages": wanted.max_messages,
            "max_bytes": wanted.max_bytes,
            "wait": wait_s,
            "checksum": checksum,
        }
        if wanted.filter_tags is not None:
            query["filter"] = wanted.filter_tags
        path = f"/v1/topics/{_quoted(wanted.topic)}/queues/{wanted.queue}/messages"
        headers = {"Accept": CONTENT_TYPE}
        if self._reads_any:
            headers["MQ-Read"] = "any"
        return Request("GET", path, query, headers, wait_s=wait_s, may_be_frame=True)

    def _route(self, topic: str) -> Mapping[str, object] | None:
        request = Request("GET", f"/v1/topics/{_quoted(topic)}/route", {}, _JSON)
        try:
            answer = self._once.once(request)
        except TryLater:
            return {}
        return document_of(answer.body) if answer.status == 200 else None

    def pull_at_once(self, wanted: Sequence[Pull]) -> list[Pulled | OutOfRange | None]:
        """Messages of several queues, all asked for before the first answer is read.

        In one attempt: None where that failed, for `pull` to try again or to say what is wrong.
        Each takes a connection, so the caller bounds how many there are.
        """
        with suppress(TryLater), ExitStack() as stack:
            calls = []
            for each in wanted:
                call = self._transport.begin(self._request(each, 0), self._node(each))
                stack.callback(call.close)
                calls.append(call)
            return [self._found_at_once(*each) for each in zip(wanted, calls, strict=True)]
        return [None] * len(wanted)

    def _found_at_once(self, wanted: Pull, call: Call) -> Pulled | OutOfRange | None:
        try:
            return self._found(wanted, call.answer())
        except (TryLater, ConnectorError):
            return None

    def _found(self, wanted: Pull, answer: Answer) -> Pulled | OutOfRange:
        if answer.status in {410, 416}:
            return _out_of_range(answer)
        self._transport.require_success(answer, f"topic {wanted.topic!r} queue {wanted.queue}")
        return _pulled(answer)

    def send(
        self, topic: str, queue: int, frame: Sequence[Buffer], claim: Claim | None = None
    ) -> None:
        """Store a request frame, given in pieces, in one queue, whole; once under a claim.

        Without one, a retry may store it again. Raises `EpochSealed` when the batch is stored, and
        `ProducerFenced` or `SequenceBroken` when this sender is not the one whose turn it is.
        """
        headers = {**_JSON, "Content-Type": CONTENT_TYPE, "Prefer": "return=minimal"}
        if claim is not None:
            headers |= claim.headers
        path = f"/v1/topics/{_quoted(topic)}/messages:batch"
        request = Request("POST", path, {"queue_id": queue}, headers, tuple(frame))

        def read(answer: Answer) -> None:
            if claim is None or not _is_stored(answer, claim.producer):
                document = self._document(answer, f"topic {topic!r}")
                _require_answer(document.get("status") == "SEND_OK", answer)

        self._transport.run(f"sending to topic {topic!r} queue {queue}", request, read)

    def plan(self, topic: str, producer: Producer, messages_per_turn: int) -> Plan:
        """How the producer's epoch fills the topic: as it has now and as is given, the first time;
        the same ever after.

        Raises `EpochSealed`, `ProducerFenced` or `TopicNotFound`.
        """
        wanted = {
            "producer": producer.family,
            "epoch": producer.epoch,
            "topic": topic,
            "messages_per_turn": messages_per_turn,
        }
        request = _with_document("POST", "/v1/producers:plan", wanted)

        def read(answer: Answer) -> Plan:
            _is_stored(answer, producer)
            document = self._document(answer, f"topic {topic!r}")
            queues, per_turn = document.get("queues"), document.get("messages_per_turn")
            ids = document.get("queue_ids")
            if (
                not isinstance(queues, int)
                or not isinstance(per_turn, int | None)
                or not (ids is None or (isinstance(ids, list) and len(ids) == queues > 0))
            ):
                raise ProtocolViolation(f"the plan cannot be read: {_shown(answer.body)}")
            of_keys = _of_keys(document.get("write_queues"), document.get("key_queue_ids"), ids)
            per_turn = messages_per_turn if per_turn is None else per_turn
            return Plan(queues, per_turn, ids, of_keys)

        return self._transport.run(f"planning batch {producer.epoch} to {topic!r}", request, read)

    def seal(self, family: str, epoch: int, messages: int) -> None:
        """Close an epoch for all producers of a family, who sent so many. Repeating is harmless.

        Raises `SequenceBroken` when the service has fewer: it lost some, and the epoch is open.
        """
        wanted = {"producer": family, "epoch": epoch, "messages": messages}
        request = _with_document("POST", "/v1/producers:seal", wanted)

        def read(answer: Answer) -> None:
            if document_of(answer.body).get("code") == "SEQUENCE_OUT_OF_ORDER":
                raise SequenceBroken(f"{describe(answer)}; the batch has to be repeated")
            sealed = self._document(answer, f"producer {family!r}").get("sealed_epoch")
            _require_answer(isinstance(sealed, int) and sealed >= epoch, answer)

        self._transport.run(f"closing batch {epoch} of {family!r}", request, read)

    def _document(self, answer: Answer, subject: str) -> Mapping[str, object]:
        self._transport.require_success(answer, subject)
        return document_of(answer.body)


def _with_document(method: str, path: str, document: object) -> Request:
    headers = {**_JSON, "Content-Type": "application/json"}
    return Request(method, path, {}, headers, (json.dumps(document).encode(),))


def calls_for(topics: Sequence[str]) -> list[list[str]]:
    """The topics, divided into as many as one call for positions takes."""
    calls: list[list[str]] = []
    size = 0
    for name in topics:
        size += len(quote_plus(f",{name}"))
        if not calls or len(calls[-1]) == TOPICS_MAX or size > NAMES_BYTES_MAX:
            calls.append([])
            size = len(quote_plus(f",{name}"))
        calls[-1].append(name)
    return calls


def _of_keys(hashed: object, kept: object, taken: Sequence[int] | None) -> KeyQueues | None:
    """Where keys go; None: a service of an earlier version does not say it."""
    if taken is None or not isinstance(hashed, int) or not isinstance(kept, list) or hashed < 1:
        return None
    return KeyQueues(hashed, [each for each in kept if each < hashed] or list(taken))


def _is_stored(answer: Answer, producer: Producer) -> bool:
    """Whether a refusal means that the messages are stored already; raise when it means that this
    sender must not go on."""
    if answer.status not in {403, 409, 410}:
        return False
    problem = document_of(answer.body)
    code = problem.get("code")
    if code in {"ALREADY_STORED", "OFFSET_EXPIRED"}:
        return True
    if code == "REQUEST_IN_PROGRESS":
        raise TryLater(describe(answer))
    if code == "SEQUENCE_OUT_OF_ORDER":
        raise SequenceBroken(f"{describe(answer)}; the task has to begin anew")
    if code == "PRODUCER_FENCED":
        raise ProducerFenced(f"{describe(answer)}; a later batch of the query has sent")
    if code == "PRODUCER_SEALED":
        if problem.get("sealed_epoch") == producer.epoch:
            raise EpochSealed(describe(answer))
        raise ProducerFenced(f"{describe(answer)}; a later batch of the query is done")
    return False


def _require_answer(is_ours: bool, answer: Answer) -> None:
    """A success that the service did not give, such as a proxy's page, stores nothing."""
    if not is_ours:
        raise ProtocolViolation(
            f"HTTP {answer.status} with an answer that is not the service's: {_shown(answer.body)}"
        )


def _shown(body: Buffer) -> str:
    """The beginning of a body, for a message."""
    return repr(bytes(body[:200]))


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _group_path(group: str, topic: str) -> str:
    return f"/v1/groups/{_quoted(group)}/offsets/{_quoted(topic)}"


def _offsets_of(body: Buffer) -> dict[int, int]:
    queues = document_of(body).get("offsets")
    try:
        assert isinstance(queues, list)
        return {int(row["queue_id"]): int(row["offset"]) for row in queues}
    except (AssertionError, KeyError, TypeError, ValueError):
        raise ProtocolViolation(f"the offsets cannot be read: {_shown(body)}") from None


def _positions_of(body: Buffer) -> Positions:
    document = document_of(body)
    try:
        topics, missing = document["topics"], document["missing"]
        assert isinstance(topics, list)
        assert isinstance(missing, list)
        states = {
            str(topic["topic"]): TopicState(
                int(topic["generation"]),
                {
                    int(queue["queue_id"]): QueueState(
                        int(queue["min_offset"]), int(queue["max_offset"]), queue["average_bytes"]
                    )
                    for queue in topic["queues"]
                },
            )
            for topic in topics
        }
        return Positions(str(document["state"]), states, frozenset(map(str, missing)))
    except (AssertionError, KeyError, TypeError, ValueError):
        raise ProtocolViolation(f"the positions cannot be read: {_shown(body)}") from None


def _out_of_range(answer: Answer) -> OutOfRange:
    problem = document_of(answer.body)
    low, high = problem.get("min_offset"), problem.get("max_offset")
    if not isinstance(low, int) or not isinstance(high, int):
        raise ProtocolViolation(f"no min_offset and max_offset in: {describe(answer)}")
    return OutOfRange(low, high)


def _pulled(answer: Answer) -> Pulled:
    media_type = media_type_of(answer.headers)
    if media_type != CONTENT_TYPE:
        raise ProtocolViolation(f"a pull was answered with {media_type!r}, not {CONTENT_TYPE!r}")
    return Pulled(
        frame=parse_frame(answer.body) if answer.frame is None else answer.frame,
        next_offset=_whole_header(answer, "mq-next-offset"),
        store_id=_store_id(answer),
        gaps=_gaps(answer),
    )


def _gaps(answer: Answer) -> list[tuple[int, int]]:
    value = answer.headers.get("mq-gaps")
    if value is None:
        return []
    try:
        return [(int(gap["from"]), int(gap["to"])) for gap in json.loads(value)]
    except (KeyError, TypeError, ValueError):
        raise ProtocolViolation(f"header mq-gaps cannot be read: {value[:200]!r}") from None


def _whole_header(answer: Answer, name: str) -> int:
    value = answer.headers.get(name, "")
    if not value.isdecimal():
        raise ProtocolViolation(f"header {name} is {value!r}, not a whole number")
    return int(value)


def _store_id(answer: Answer) -> bytes:
    value = answer.headers.get("mq-store-id", "")
    try:
        store_id = bytes.fromhex(value)
    except ValueError:
        store_id = b""
    if len(store_id) != 4:
        raise ProtocolViolation(f"header mq-store-id is {value!r}, not 8 hexadecimal digits")
    return store_id
