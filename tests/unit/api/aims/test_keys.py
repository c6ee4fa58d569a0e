"""A send is aimed where its handler puts it: both read keys in the same way."""

from functools import partial
from types import SimpleNamespace
from typing import Final, cast

import msgspec
import pytest

from app.api.aims.aim import BODY, HERE, Aim
from app.api.aims.of_sends import A_BATCH, A_MESSAGE
from app.api.aims.places import Metadata, Places
from app.api.formats.cloudevents import attributes_of_headers, decode_event
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import RequestContext
from app.domain.limits import Limits
from app.domain.message import queue_for_sharding_key

QUEUES: Final = 4_096
TOPIC: Final = SimpleNamespace(
    name="orders",
    queues=QUEUES,
    open_queues=range(QUEUES),
    is_open_here=False,
    queue_of_key=partial(queue_for_sharding_key, queues=QUEUES),
    home_of=partial(queue_for_sharding_key, queues=QUEUES),
    shard_of=str,
)
PLACES: Final = Places(
    cast("Metadata", SimpleNamespace(snapshot=SimpleNamespace(topics={"orders": TOPIC}))),
    lambda _: True,
    Limits(batch_messages_max=100),
)
NAMES: Final = ("orders",)


def asked(*headers: tuple[bytes, bytes], query: bytes = b"") -> RequestContext:
    async def nothing(*_: object) -> None:
        return

    scope = {"headers": list(headers), "query_string": query}
    found = RequestContext(scope, nothing, nothing, b"id", MemoryBudget(Limits()))  # type: ignore[arg-type]
    found.mq_headers = [each for each in headers if each[0].startswith(b"mq-")]
    return found


def event(key: bytes) -> list[tuple[bytes, bytes]]:
    head = {"specversion": b"1.0", "id": b"1", "source": b"s", "type": b"t", "partitionkey": key}
    return [(b"ce-" + name.encode(), value) for name, value in head.items()]


@pytest.mark.parametrize("key", [b"a", b"a%20b", b"%E2%82%AC", "€".encode(), b'"a b"', b'"'])
def test_an_event_in_headers_goes_where_its_key_does(key: bytes) -> None:
    text = attributes_of_headers(event(key))["ce-partitionkey"]
    found = A_MESSAGE.head(asked(*event(key)), NAMES, PLACES)
    assert found == PLACES.of_key(TOPIC, text)


def test_a_key_that_is_no_text_is_for_its_handler() -> None:
    assert A_MESSAGE.head(asked(*event(b"%ff")), NAMES, PLACES) is HERE


@pytest.mark.parametrize("key", ["a", 17, -1, True, False])
def test_an_event_in_json_goes_where_its_key_does(key: object) -> None:
    shown = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "partitionkey": key}
    body = msgspec.json.encode(shown)
    text = decode_event(body).sharding_key
    assert text is not None
    assert A_MESSAGE.body is not None
    found = A_MESSAGE.body(asked(), NAMES, PLACES, body)
    assert found == PLACES.of_key(TOPIC, text)


@pytest.mark.parametrize("aim", [A_MESSAGE, A_BATCH], ids=["message", "batch"])
def test_one_idempotency_key_has_one_home_however_it_is_written(aim: Aim) -> None:
    def found(*headers: tuple[bytes, bytes], query: bytes = b"") -> object:
        request = asked(*headers, query=query)
        shard = aim.head(request, NAMES, PLACES)
        if shard is not BODY:
            return shard
        assert aim.body is not None
        return aim.body(request, NAMES, PLACES, b'{"messages":[{}]}')

    home = PLACES.of_home(TOPIC, 'a"7')
    for header in (b'"a\\"7"', b' "a\\"7" '):
        assert found((b"idempotency-key", header)) == home
    assert found(query=b"idempotency_key=a%227") == home
    assert found((b"idempotency-key", b"a7")) == PLACES.of_home(TOPIC, "a7")
    assert found((b"idempotency-key", b'"a')) is HERE
