"""`GET /v1/audit`: who changed what, and whom it was denied."""

import base64
import json
from typing import Annotated, Final, Literal

from fastapi import Query
from pydantic import Field, JsonValue

from app.api.control.dependencies import WithPageSize, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import AnswerModel
from app.api.operations.operation import Action
from app.cluster import AuditEntry, Sought
from app.domain.errors import IllegalPage, InvalidRequest

router = OperationRouter("access")

_TIME_MS_MAX: Final = 2**53
_SEQ_MAX: Final = 2**63 - 1


class AuditEntryDocument(AnswerModel):
    """One entry. Those of one node are a chain."""

    node_id: str = Field(description="Whose chain it is in; `commands` of those that ran offline")
    seq: int = Field(description="Its number in the chain", examples=[17])
    at_ms: int = Field(description="When, in epoch milliseconds", examples=[1764000000000])
    principal: str | None = Field(description="Who; null: nobody was asked for a name")
    address: str | None = Field(description="From where", examples=["192.0.2.7"])
    request_id: str | None = Field(description="The node's id of the request")
    client_request_id: str | None = Field(description="`MQ-Request-Id` as the client gave it")
    action: str = Field(description="What was done, or asked for", examples=["UPDATE"])
    resource: str = Field(description="What it was done to", examples=["topic:orders"])
    outcome: str = Field(
        description="`done`; `intended` and later `done` or `failed: CODE` of what happens in the"
        " log; `denied: CODE`",
        examples=["done"],
    )
    before: JsonValue = Field(description="The thing before; null: it was made")
    after: JsonValue = Field(description="The thing after; null: it is gone")
    signed_with: str | None = Field(description="Fingerprint of the secret key; null: unsigned")

    @classmethod
    def of(cls, entry: AuditEntry) -> "AuditEntryDocument":
        given = entry._asdict()
        return cls(
            **{name: each for name, each in given.items() if name in _SAME},
            node_id=entry.node,
            before=_shown(entry.before),
            after=_shown(entry.after),
            signed_with=entry.key_id,
        )


_SAME = AuditEntryDocument.model_fields.keys() - {"before", "after"}


class AuditHeadDocument(AnswerModel):
    """The newest entry of a chain. Who keeps it can tell later whether entries were cut off."""

    node_id: str = Field(description="Whose chain")
    seq: int = Field(description="Number of its newest entry", examples=[17])
    link: str = Field(description="Its link, in hexadecimal digits")


class AuditDocument(AnswerModel):
    """Entries by time."""

    entries: list[AuditEntryDocument] = Field(
        description="The oldest first; with `direction=backward` the newest"
    )
    next_page_token: str | None = Field(description="Of the next page; null: this is the last")
    previous_page_token: str | None = Field(
        description="With the other `direction`: of the page before, from its end on; null: this"
        " is the first"
    )
    heads: list[AuditHeadDocument] = Field(description="Of all chains")


@router.serve(
    "GET /v1/audit",
    "Who changed what, and whom it was denied",
    needs={"cluster": Action.ADMIN},
    by_each_node=True,
)
async def get_audit(  # noqa: PLR0913, RUF100
    services: WithServices,
    page_size: WithPageSize,
    since_ms: Annotated[
        int | None, Query(ge=0, le=_TIME_MS_MAX, description="From then on")
    ] = None,
    principal: Annotated[str | None, Query(description="Of that one only")] = None,
    action: Annotated[str | None, Query(description="That was done or asked for")] = None,
    resource: Annotated[
        str | None, Query(description="Done to that; with `*` at its end the beginning of it")
    ] = None,
    direction: Annotated[
        Literal["forward", "backward"], Query(description="`backward`: the newest first")
    ] = "forward",
    page_token: Annotated[str | None, Query(description="Of the page before")] = None,
) -> AuditDocument:
    """Changes of topics, groups, offsets, principals, policies, schedules and namespaces, each
    redrive, purge and reset, and what was denied, added up each 10 seconds. Pull it from where
    the last page ended to keep it elsewhere."""
    if any("\0" in each for each in (principal, action, resource) if each is not None):
        raise InvalidRequest("there is a character NUL in the query, which no name has")
    after = None if page_token is None else _place_in(page_token)
    sought = Sought(since_ms, principal, action, resource)
    page = await services.metadata.audit.page(
        sought, after, page_size, is_backward=direction == "backward"
    )
    heads = await services.metadata.audit.heads()
    return AuditDocument(
        entries=[AuditEntryDocument.of(each) for each in page.entries],
        next_page_token=None if page.after is None else _token(page.after),
        previous_page_token=None if page.before is None else _token(page.before),
        heads=[
            AuditHeadDocument(node_id=each.node, seq=each.seq, link=each.link.hex())
            for each in heads
        ],
    )


def _shown(text: str | None) -> JsonValue:
    shown: JsonValue = None if text is None else json.loads(text)
    return shown


def _token(place: tuple[int, str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place_in(token: str) -> tuple[int, str, int]:
    try:
        at_ms, node, seq = json.loads(base64.urlsafe_b64decode(token.encode()))
        place = int(at_ms), str(node), int(seq)
        place[1].encode()  # half of a surrogate pair is no text
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise IllegalPage("the page token was not issued by this service") from error
    if not 0 <= place[0] <= _TIME_MS_MAX or not 0 <= place[2] <= _SEQ_MAX or "\0" in place[1]:
        raise IllegalPage("the page token was not issued by this service")
    return place
