"""What makes a send happen once, from its headers: a producer's sequence or an `Idempotency-Key`.

The key's syntax is draft-ietf-httpapi-idempotency-key-header-08's, a string in quotes; the bare
text is taken as well, since that is what people type. A key stands for one request: a digest of
path, query, `MQ-*` headers, content type and body tells whether it is the same one. It is its
principal's: nobody takes another's place with a key that can be guessed. Pure.
"""

import asyncio
import re
from hashlib import blake2b
from typing import Final

from app.api.formats.mq_headers import SendOptions
from app.api.http.parameters import agreed
from app.api.http.request_context import RequestContext
from app.api.naming.request_namespace import stored
from app.broker.dedup.tokens import Claim, KeyToken, ProducerToken
from app.domain.access.actions import Action, Kind
from app.domain.errors import InvalidRequest
from app.domain.limits import KIB

IDEMPOTENCY_KEY: Final = b"idempotency-key"
DUPLICATE: Final = (b"mq-duplicate", b"true")
"""On the answer to a repetition."""

_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE: Final = re.compile(r"[!#-\[\]-~]+")
_HOW_IT_IS_ASKED: Final = frozenset(
    {"timeout", "one_way", "client_id", "forward", "read", "namespace"}
)
"""Aliases of headers that are no part of what is asked for: how long somebody waits, and how the
request finds its node and its names. A repetition may say them otherwise."""
_HEADERS_LEFT_OUT: Final = frozenset(
    f"mq-{alias.replace('_', '-')}".encode() for alias in _HOW_IT_IS_ASKED
)
_PARAMETERS_LEFT_OUT: Final = frozenset(alias.encode() for alias in _HOW_IT_IS_ASKED)
_FINGERPRINT_BYTES: Final = 12
_OWNER_BYTES: Final = 8
_DIGESTED_INLINE_BYTES_MAX: Final = 256 * KIB
"""The digest of a larger body is made on a thread: a millisecond a MiB."""


async def claim_of(
    options: SendOptions, exchange: RequestContext, body: bytes | bytearray | memoryview
) -> Claim | None:
    """The claim of a send; None when it has none. `InvalidRequest` for half a one, or for two.

    Whoever may name a producer may fence it, so the caller needs PUB on its id.
    """
    key = options.idempotency_key
    if IDEMPOTENCY_KEY in exchange.headers:
        of_header = key_of(exchange.headers[IDEMPOTENCY_KEY].decode("latin-1"))
        key = agreed("idempotency_key", of_header, key)
    producer = _producer_of(options)
    if producer is None:
        if key is None:
            return None
        return KeyToken(key, await _fingerprint(exchange, body), _owner_of(exchange.caller.name))
    exchange.require(Action.PUB, Kind.PRODUCER, producer.producer_id)
    if key is not None:
        raise InvalidRequest(
            "Idempotency-Key and a producer sequence are two ways of saying the same",
            hint="send one of them",
            fields={"header": "Idempotency-Key"},
        )
    return producer


def _owner_of(principal: str | None) -> str:
    """Whose key it is, of a bounded length."""
    if principal is None:
        return ""
    return blake2b(principal.encode(), digest_size=_OWNER_BYTES).hexdigest()


def _producer_of(options: SendOptions) -> ProducerToken | None:
    producer_id, epoch, seq = options.producer_id, options.producer_epoch, options.producer_seq
    if producer_id is None and epoch is None and seq is None:
        return None
    if producer_id is None or epoch is None or seq is None:
        given = {"MQ-Producer-Id": producer_id, "MQ-Producer-Epoch": epoch, "MQ-Producer-Seq": seq}
        missing = [name for name, value in given.items() if value is None]
        raise InvalidRequest(
            f"{missing[0]} is missing: id, epoch and sequence of a producer go together",
            hint="the sequence is the number of the first message, from 0 on in each epoch",
            fields={"header": missing[0]},
        )
    return ProducerToken(stored("producer", producer_id), epoch, seq)


def key_of(text: str) -> str:
    """The key that a header names. Raises `InvalidRequest` for what is none."""
    quoted = _QUOTED.fullmatch(text.strip())
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if _BARE.fullmatch(text.strip()):
        return text.strip()
    raise InvalidRequest(
        f"Idempotency-Key is {text!r}",
        hint='write it as a string: Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"',
        fields={"header": "Idempotency-Key"},
    )


async def _fingerprint(exchange: RequestContext, body: bytes | bytearray | memoryview) -> str:
    digest = blake2b(digest_size=_FINGERPRINT_BYTES)
    content_type = exchange.headers.get(b"content-type", b"")
    given = sorted(exchange.mq_headers)
    lines = [b": ".join(pair) for pair in given if pair[0] not in _HEADERS_LEFT_OUT]
    query = b"&".join(
        [
            each
            for each in exchange.query.split(b"&")
            if each.partition(b"=")[0] not in _PARAMETERS_LEFT_OUT
        ]
    )
    head = [exchange.instance.encode(), query, content_type, *lines, b""]
    digest.update(b"\n".join(head))
    if len(body) <= _DIGESTED_INLINE_BYTES_MAX:
        digest.update(body)
    else:
        await asyncio.get_running_loop().run_in_executor(None, digest.update, body)
    return digest.hexdigest()
