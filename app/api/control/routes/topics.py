"""Topics: settings, listing, offsets, one message by id."""

from typing import Annotated, Final, Literal

from fastapi import Depends, Query, Request, Response

from app.api.aims import merges
from app.api.aims.across import Together
from app.api.aims.of_names import A_MESSAGE_ID, A_QUEUE
from app.api.control.dependencies import WithAccess, WithPageSize, WithServices, json_body
from app.api.control.kept_to_rights import kept_to_rights
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.change_documents import TopicChangeDocument, deleted, dry_run_answer
from app.api.control.schemas.schemas import TopicDocument, TopicList, TopicOffsets
from app.api.control.schemas.setting_bodies import TopicBody, TopicPatch
from app.api.formats.cloudevents import EVENT, event_of
from app.api.formats.media import (
    JSON,
    MERGE_PATCH,
    OCTETS,
    message_answer_kind,
    require_merge_patch,
)
from app.api.formats.raw_message import raw_body, raw_headers
from app.api.formats.rendering import view_of
from app.api.formats.wire import MessageView, encode_line
from app.api.http.conditions import WithPatchTerms, WithTerms, etag_of
from app.api.http.entity_tags import VARY, is_known, tag_of_message
from app.api.http.parameters import integer_of, point_of
from app.api.naming.request_namespace import current_namespace
from app.api.operations.answers import (
    BINARY,
    CACHE_HEADERS,
    ETAG_HEADER,
    EVENT_SCHEMA,
    RAW_MESSAGE_HEADERS,
)
from app.api.operations.operation import Action, Answer, Body, Json
from app.broker.ports import Topic
from app.broker.topic_lookup import check_queue, find_topic
from app.domain.access.actions import Kind
from app.domain.changes.effects import SettingsChange
from app.domain.errors import InvalidRequest

_BOUNDS_HEADERS: Final[Json] = {
    "MQ-Min-Offset": {"schema": {"type": "integer", "minimum": 0}},
    "MQ-Max-Offset": {
        "schema": {"type": "integer", "minimum": 0},
        "description": "one past the last readable",
    },
}

_SHOWN_INERT: Final = (
    (b"content-security-policy", b"sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
"""A producer names the type: HTML in a message must not run as a page of this node."""

_INERT_HEADERS: Final[Json] = {
    "Content-Security-Policy": {"schema": {"type": "string"}, "description": "of one given raw"},
    "X-Content-Type-Options": {"schema": {"type": "string"}, "description": "of one given raw"},
}

router = OperationRouter("topics")


@router.serve(
    "PUT /v1/topics/{topic}",
    "Make a topic, or change what is named of it",
    needs={"topic": Action.UPDATE},
    makes=("topic",),
    body=Body(
        TopicBody,
        examples={
            "make a topic": {"queues": 8, "retention": "3d", "flush": "sync"},
            "keep messages longer": {"retention": "30d"},
            "take no more messages": {"permission": "r"},
            "bound what is taken": {"max_rate": 500, "max_body_bytes": 65536},
        },
    ),
    answers={
        200: Answer("The topic was there; see `changed`", headers=ETAG_HEADER),
        201: Answer("The topic was made", TopicChangeDocument, ETAG_HEADER),
    },
    problems=(409, 412),
)
async def put_topic(
    topic: str,
    services: WithServices,
    access: WithAccess,
    body: Annotated[TopicBody, Depends(json_body(TopicBody))],
    terms: WithTerms,
    response: Response,
) -> TopicChangeDocument:
    """Make the topic; what is left out has its default. Or merge the settings into those that it
    has; what is left out stays. `If-None-Match: *` only makes.

    Queues can grow, never shrink; `write_queues` says how many of them take messages.
    """
    with kept_to_rights(access, Kind.TOPIC, topic, terms) as kept:
        change = await services.broker.settings_changes.change_topic(topic, body.named(), kept)
    return _answer(change, response)


@router.serve(
    "PATCH /v1/topics/{topic}",
    "Change what is named of a topic",
    needs={"topic": Action.UPDATE},
    body=Body(
        {MERGE_PATCH: TopicPatch, JSON: TopicPatch},
        examples={"more queues": {"queues": 16}, "retention as by default": {"retention": None}},
    ),
    answers={200: Answer("The topic; see `changed`", headers=ETAG_HEADER)},
    problems=(409, 412),
)
async def patch_topic(
    topic: str,
    services: WithServices,
    body: Annotated[TopicPatch, Depends(json_body(TopicPatch, require=require_merge_patch))],
    terms: WithPatchTerms,
    response: Response,
) -> TopicChangeDocument:
    """A JSON merge patch (RFC 7396): null is the default."""
    change = await services.broker.settings_changes.change_topic(topic, body.named(), terms)
    return _answer(change, response)


def _answer(change: SettingsChange[Topic], response: Response) -> TopicChangeDocument:
    if not change.is_dry_run:
        response.status_code = 201 if change.is_made else 200
        response.headers["ETag"] = etag_of(change.after.version)
    return TopicChangeDocument.of_change(change)


@router.serve(
    "GET /v1/topics/{topic}",
    "Read a topic's settings",
    needs={"topic": Action.GET},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def get_topic(topic: str, services: WithServices, response: Response) -> TopicDocument:
    """The settings of the topic."""
    view = find_topic(services.metadata, topic)
    response.headers["ETag"] = etag_of(view.version)
    return TopicDocument.of(view)


@router.serve(
    "HEAD /v1/topics/{topic}",
    "Whether the topic is there, and its version",
    needs={"topic": Action.GET},
    answers={200: Answer(headers=ETAG_HEADER)},
)
async def head_topic(topic: str, services: WithServices) -> Response:
    """The headers of `GET`."""
    view = find_topic(services.metadata, topic)
    return Response(headers={"ETag": etag_of(view.version)})


@router.serve(
    "GET /v1/topics",
    "List topics",
    needs={"topic": Action.LIST},
)
async def list_topics(
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    prefix: str = "",
    page_token: str | None = None,
) -> TopicList:
    """Topics by name, a page at a time; those that the caller may know of."""
    access.for_anybody()
    page = services.metadata.list_topics(
        namespace=current_namespace(),
        prefix=prefix,
        page_size=page_size,
        page_token=page_token,
        visible=access.sees_topic,
    )
    topics = [TopicDocument.of(topic) for topic in page.items]
    return TopicList(topics=topics, next_page_token=page.next_page_token)


@router.serve(
    "DELETE /v1/topics/{topic}",
    "Delete a topic",
    needs={"topic": Action.DELETE},
    status=204,
    answers={200: dry_run_answer(TopicChangeDocument)},
    problems=(412,),
)
async def delete_topic(topic: str, services: WithServices, terms: WithTerms) -> Response:
    """Delete the topic. Its messages become unreadable for ever."""
    change = await services.broker.settings_changes.delete_topic(topic, terms)
    return deleted(TopicChangeDocument.of_change(change))


@router.serve(
    "HEAD /v1/topics/{topic}/queues/{queue}",
    "Where a queue begins and ends",
    needs={"topic": Action.GET},
    answers={200: Answer(headers=_BOUNDS_HEADERS)},
    aim=A_QUEUE,
)
async def head_queue(topic: str, queue: str, services: WithServices) -> Response:
    """In headers only: one request without a body tells whether there is something new."""
    queue_id = integer_of("queue", queue, error=InvalidRequest)
    check_queue(find_topic(services.metadata, topic), queue_id)
    bounds = services.broker.topic_ends.bounds(topic)
    found = bounds[queue_id]
    return Response(
        headers={"MQ-Min-Offset": str(found.min_offset), "MQ-Max-Offset": str(found.max_offset)}
    )


@router.serve(
    "GET /v1/topics/{topic}/offsets",
    "Offsets of all queues at a point",
    needs={"topic": Action.GET},
    across=Together(merges.offsets),
)
async def get_topic_offsets(
    topic: str,
    services: WithServices,
    at: Annotated[str, Query(description="earliest, latest, or epoch milliseconds")],
) -> TopicOffsets:
    """Where to start reading each queue: at its beginning, at its end, or from a time on."""
    return TopicOffsets.of(
        topic, at, await services.broker.topic_ends.offsets_at(topic, point_of(at))
    )


@router.serve(
    "GET /v1/topics/{topic}/messages/{message_id}",
    "Read one message by its id",
    needs={"topic": Action.SUB},
    answers={
        200: Answer(
            f"The message; by `Accept` also {EVENT}, and its body with `format=raw`",
            MessageView,
            {**RAW_MESSAGE_HEADERS, **CACHE_HEADERS, **_INERT_HEADERS},
            when_asked={EVENT: EVENT_SCHEMA, OCTETS: BINARY},
        ),
        304: Answer("As `If-None-Match` has it", headers=CACHE_HEADERS),
    },
    problems=(406,),
    aim=A_MESSAGE_ID,
)
async def get_message(
    topic: str,
    message_id: str,
    services: WithServices,
    request: Request,
    format: Annotated[  # noqa: A002  # the name in the URL
        Literal["json", "raw"] | None, Query(description="raw: the body, metadata in headers")
    ] = None,
    body: Annotated[
        Literal["auto", "base64"], Query(description="base64: the bytes, whatever they are")
    ] = "auto",
) -> Response:
    """As `format` says, else as `Accept`: JSON, a structured CloudEvent, or raw.

    Raw is also given to a client that accepts just the content type of the message."""
    message = await services.broker.browser.message(topic, message_id)
    accept = request.headers.get("accept", "").encode("latin-1")
    kind = format or message_answer_kind(accept, message.content_type)
    place = (message.topic, message.queue_id, message.queue_offset, message.store_time_ms)
    accepted = request.headers.get("accept-encoding", "").encode("latin-1")
    stored, of_body = raw_body(message, accepted)
    packed = of_body[0][1].decode() if len(of_body) > 1 else ""
    tag = tag_of_message(f"{kind} {body} {packed}".rstrip(), place)
    # An id that a producer gave may one day name a newer message, so the client asks each time.
    kept = [(b"etag", tag), (b"cache-control", b"private, no-cache"), VARY]
    condition = request.headers.get("if-none-match")
    if condition is not None and is_known(condition.encode("latin-1"), tag):
        answer = Response(status_code=304)
    elif kind == "raw":
        answer = Response(stored)
        kept = [*raw_headers(message), *of_body, *_SHOWN_INERT, *kept]
    elif kind == "event":
        event = event_of(message, force_base64=body == "base64")
        answer = Response(encode_line(event), media_type=EVENT)
    else:
        view = view_of(message, force_base64=body == "base64")
        answer = Response(encode_line(view), media_type=JSON)
    answer.raw_headers = [*kept, *answer.raw_headers]
    return answer
