"""Operations that settle leased messages: ack, nack, extend, dead-letter, release."""

from functools import partial
from typing import Final

from app.api.aims.across import Split
from app.api.aims.of_names import A_RECEIPT, RECEIPTS
from app.api.dataplane.routes.paths_and_answers import GROUP_PATH, SUB_GROUP
from app.api.dataplane.settling import RECEIPT_PARAMETERS
from app.api.formats import wire
from app.api.operations.operation import Action, Answer, Body, Json, Operation

_HANDLES: Final[Json] = {"receipt_handles": ["AgYHb3JkZXJzYmlsbGluZwAAAAA"]}

_HANDLE: Final = "AgYHb3JkZXJzYmlsbGluZwAAAAA"

_settle: Final = partial(
    Operation,
    needs=SUB_GROUP,
    answers={
        200: Answer("All succeeded", wire.SettleAnswer),
        207: Answer("Some succeeded", wire.SettleAnswer),
    },
)

SETTLE_MESSAGES: Final = _settle(
    operation_id="settle_messages",
    across=Split(("acks", "nacks", "extends", "dead_letters", "releases")),
    aim=RECEIPTS,
    route=f"POST {GROUP_PATH}/messages:settle",
    summary="Ack, nack, extend, dead-letter and release messages, or ack and send",
    description=(
        "One result per handle. `releases` are handed back untouched: visible at once in their "
        "place, and no attempt is counted. Acks with `sends` are one atomic step: with one "
        "handle that is not live or one message that is not valid nothing is done, and the "
        "problem has the `results` and `sends` that say which. There a handle works once."
    ),
    body=Body(
        wire.SettleBody,
        required=True,
        examples={
            "one is done and one comes back": {
                "acks": [_HANDLE],
                "nacks": [{"receipt_handle": _HANDLE, "delay": "30s", "reason": "no stock"}],
            },
            "done and the next step sent in one": {
                "acks": [_HANDLE],
                "sends": [{"topic": "shipments", "body": {"id": 17}}],
            },
        },
    ),
    problems=(409, 410, 429, 507),
)

ACK_MESSAGES: Final = _settle(
    operation_id="ack_messages",
    across=Split(("receipt_handles",), "ack"),
    aim=RECEIPTS,
    route=f"POST {GROUP_PATH}/messages:ack",
    summary="Acknowledge messages",
    body=Body(wire.AckBody, required=True, examples={"all are done": _HANDLES}),
    problems=(410,),
)

NACK_MESSAGES: Final = _settle(
    operation_id="nack_messages",
    across=Split(("receipt_handles",), "nack"),
    aim=RECEIPTS,
    route=f"POST {GROUP_PATH}/messages:nack",
    summary="Give messages back",
    body=Body(
        wire.NackBody,
        required=True,
        examples={"again in half a minute": {**_HANDLES, "delay": "30s", "reason": "no stock"}},
    ),
    problems=(410,),
)

EXTEND_MESSAGES: Final = _settle(
    operation_id="extend_messages",
    across=Split(("receipt_handles",), "extend"),
    aim=RECEIPTS,
    route=f"POST {GROUP_PATH}/messages:extend",
    summary="Keep messages longer",
    body=Body(
        wire.ExtendBody,
        required=True,
        examples={"a minute more": {**_HANDLES, "invisible": "60s"}},
    ),
    problems=(410,),
)

DEAD_LETTER_MESSAGES: Final = _settle(
    operation_id="dead_letter_messages",
    across=Split(("receipt_handles",), "dead_letter"),
    aim=RECEIPTS,
    route=f"POST {GROUP_PATH}/messages:dead-letter",
    summary="Give messages up",
    body=Body(
        wire.DeadLetterBody,
        required=True,
        examples={"nobody can handle these": {**_HANDLES, "reason": "no such customer"}},
    ),
    problems=(410,),
)

ACK_RECEIPT: Final = Operation(
    operation_id="ack_receipt",
    aim=A_RECEIPT,
    route="DELETE /v1/receipts/{handle}",
    summary="Acknowledge one message",
    needs={"receipt": Action.SUB},
    answers={204: Answer("Acknowledged")},
    problems=(410,),
)

CHANGE_RECEIPT: Final = Operation(
    operation_id="change_receipt",
    aim=A_RECEIPT,
    route="PATCH /v1/receipts/{handle}",
    summary="Extend, nack, dead-letter or release one message",
    needs={"receipt": Action.SUB},
    description="Query parameters win over the body, which may be empty.",
    query=RECEIPT_PARAMETERS,
    body=Body(
        wire.ReceiptChange,
        examples={
            "a minute more": {"action": "extend", "invisible": "60s"},
            "again in half a minute": {"action": "nack", "delay": "30s"},
        },
    ),
    answers={200: Answer("Done", wire.ReceiptAnswer)},
    problems=(410,),
)
