"""Sends that cannot be: each gets a clear problem document, and nothing is stored."""

import httpx
import pytest

from app.api.formats.media import ENVELOPE, FRAMES, NDJSON
from app.domain.limits import MIB
from app.domain.message import Message
from tests.support.clients.bad_input import JSON, Bad, check_refusal
from tests.support.clients.frames import request_frame

MESSAGES = "/v1/topics/{t}/messages"
BATCH = "/v1/topics/{t}/messages:batch"
FRAME = request_frame([Message(b"x")], "any")

REFUSED = [
    Bad(
        "unknown topic",
        "POST",
        "/v1/topics/{t}x/messages",
        404,
        "TOPIC_NOT_FOUND",
        hint="did you mean '{t}'?",
    ),
    Bad("illegal name", "POST", "/v1/topics/a.b/messages", 400, "ILLEGAL_TOPIC"),
    Bad("long name", "POST", f"/v1/topics/{'a' * 128}/messages", 400, "ILLEGAL_TOPIC"),
    Bad("system name", "POST", "/v1/topics/%25RETRY%25g/messages", 400, "ILLEGAL_TOPIC"),
    Bad("large body", "POST", MESSAGES, 413, "MESSAGE_BODY_TOO_LARGE", b"x" * (4 * MIB + 1)),
    Bad("unknown queue", "POST", MESSAGES + "?queue_id=2", 404, "QUEUE_NOT_FOUND"),
    Bad("negative queue", "POST", MESSAGES + "?queue_id=-1", 400, "BAD_REQUEST"),
    Bad(
        "illegal tag",
        "POST",
        MESSAGES + "?tag=a%7C%7Cb",
        400,
        "ILLEGAL_MESSAGE_TAG",
        pointer="/tag",
    ),
    Bad(
        "reserved property", "POST", MESSAGES + "?prop_TAGS=x", 400, "ILLEGAL_MESSAGE_PROPERTY_KEY"
    ),
    Bad(
        "large properties",
        "POST",
        MESSAGES + "?prop_a=" + "x" * 17_000,
        431,
        "MESSAGE_PROPERTIES_TOO_LARGE",
    ),
    Bad(
        "unknown parameter",
        "POST",
        MESSAGES + "?tags=x",
        400,
        "BAD_REQUEST",
        hint="did you mean 'tag'?",
    ),
    Bad(
        "unknown header",
        "POST",
        MESSAGES,
        400,
        "BAD_REQUEST",
        headers={"MQ-Tags": "x"},
        hint="did you mean 'MQ-Tag'?",
    ),
    Bad("delay", "POST", MESSAGES, 400, "ILLEGAL_DELIVERY_TIME", headers={"MQ-Delay": "30"}),
    Bad("delay in query", "POST", MESSAGES + "?delay=x", 400, "ILLEGAL_DELIVERY_TIME"),
    Bad("transaction", "POST", MESSAGES, 400, "BAD_REQUEST", headers={"MQ-Transaction": "prepare"}),
    Bad(
        "delayed transaction",
        "POST",
        MESSAGES + "?delay=1s",
        400,
        "UNSUPPORTED",
        headers={"MQ-Transaction": "prepare; group=pg1"},
    ),
    Bad("no key", "POST", MESSAGES, 400, "BAD_REQUEST", headers={"Idempotency-Key": ""}),
    Bad("half a key", "POST", MESSAGES, 400, "BAD_REQUEST", headers={"Idempotency-Key": '"a'}),
    Bad(
        "a key that is too long",
        "POST",
        MESSAGES,
        400,
        "BAD_REQUEST",
        headers={"Idempotency-Key": "k" * 256},
    ),
    Bad("no sequence", "POST", MESSAGES, 400, "BAD_REQUEST", headers={"MQ-Producer-Id": "p"}),
    Bad(
        "an empty producer and another",
        "POST",
        f"{MESSAGES}?producer_id=p",
        400,
        "BAD_REQUEST",
        headers={"MQ-Producer-Id": ""},
    ),
    Bad(
        "a sequence that is no number",
        "POST",
        MESSAGES,
        400,
        "BAD_REQUEST",
        headers={"MQ-Producer-Id": "p", "MQ-Producer-Epoch": "0", "MQ-Producer-Seq": "first"},
    ),
    Bad(
        "a producer id that cannot be one",
        "POST",
        MESSAGES,
        400,
        "BAD_REQUEST",
        headers={"MQ-Producer-Id": "p q", "MQ-Producer-Epoch": "0", "MQ-Producer-Seq": "0"},
    ),
    Bad(
        "key and sequence",
        "POST",
        BATCH,
        400,
        "BAD_REQUEST",
        b'{"messages":[{"text":"x"}]}',
        {
            **JSON,
            "Idempotency-Key": "a",
            "MQ-Producer-Id": "p",
            "MQ-Producer-Epoch": "0",
            "MQ-Producer-Seq": "0",
        },
    ),
    Bad(
        "replication", "POST", MESSAGES, 400, "UNSUPPORTED", headers={"MQ-Durability": "replicated"}
    ),
    Bad("cloud event", "POST", MESSAGES, 400, "BAD_REQUEST", headers={"ce-specversion": "1.0"}),
    Bad(
        "compressed body",
        "POST",
        MESSAGES,
        415,
        "UNSUPPORTED_MEDIA_TYPE",
        headers={"Content-Encoding": "br"},
    ),
    Bad(
        "malformed envelope",
        "POST",
        MESSAGES,
        400,
        "MALFORMED_BODY",
        b'{"text":',
        {"Content-Type": ENVELOPE},
    ),
    Bad(
        "unknown field",
        "POST",
        MESSAGES,
        400,
        "MALFORMED_BODY",
        b'{"text":"a","tagg":"b"}',
        {"Content-Type": ENVELOPE},
        "did you mean 'tag'?",
        "/tagg",
    ),
    Bad(
        "planned field",
        "POST",
        MESSAGES,
        400,
        "UNSUPPORTED",
        b'{"text":"a","transaction":"prepare"}',
        {"Content-Type": ENVELOPE},
        pointer="/transaction",
    ),
    Bad(
        "bad base64",
        "POST",
        MESSAGES,
        400,
        "MALFORMED_BODY",
        b'{"body_base64":"%"}',
        {"Content-Type": ENVELOPE},
        pointer="/body_base64",
    ),
    Bad("malformed batch", "POST", BATCH, 400, "MALFORMED_BODY", b"[", JSON),
    Bad("empty batch", "POST", BATCH, 400, "MALFORMED_BODY", b'{"messages":[]}', JSON),
    Bad("no lines", "POST", BATCH, 400, "MALFORMED_BODY", b"\n\n", {"Content-Type": NDJSON}),
    Bad(
        "many messages",
        "POST",
        BATCH,
        413,
        "PAYLOAD_TOO_LARGE",
        b'{"text":""}\n' * 10_001,
        {"Content-Type": NDJSON},
    ),
    Bad("large batch", "POST", BATCH, 413, "PAYLOAD_TOO_LARGE", b" " * (32 * MIB + 1), JSON),
    Bad(
        "batch of XML",
        "POST",
        BATCH,
        415,
        "UNSUPPORTED_MEDIA_TYPE",
        b"<a/>",
        {"Content-Type": "text/xml"},
    ),
    Bad("tag on a batch", "POST", BATCH, 400, "BAD_REQUEST", b"{}", {**JSON, "MQ-Tag": "x"}),
    Bad("no frame", "POST", BATCH, 400, "MALFORMED_FRAME", b"x" * 40, {"Content-Type": FRAMES}),
    Bad("cut frame", "POST", BATCH, 400, "MALFORMED_FRAME", FRAME[:-1], {"Content-Type": FRAMES}),
    Bad(
        "spread frame",
        "POST",
        BATCH + "?spread",
        400,
        "UNSUPPORTED",
        FRAME,
        {"Content-Type": FRAMES},
    ),
]


@pytest.mark.parametrize("bad", REFUSED, ids=str)
def test_it_is_refused_clearly(http: httpx.Client, topic: str, bad: Bad) -> None:
    check_refusal(http, topic, bad, sends=True)
