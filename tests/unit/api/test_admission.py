"""What is let in before anything looks at the path; by itself, without a gateway around it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import pytest

from app.api.access.credentials import Credentials
from app.api.admission import Admission, bind
from app.api.http.errors import Forbidden, HeadersTooLarge, MalformedRequest
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import CONNECTION, ConnectionMemory, RequestContext
from app.api.relay.calls import RAW_QUERY
from app.api.relay.envelope import RELAYED
from app.domain.access.caller import OPEN
from app.domain.access.refusals import NotPermitted, Unauthorized
from app.domain.errors import InvalidRequest, NamespaceNotFound
from app.domain.limits import Limits
from tests.support.nodes.closed import Access

HOST = (b"host", b"127.0.0.1:8710")


def asked(
    headers: Sequence[tuple[bytes, bytes]] = (HOST,),
    query: bytes = b"",
    within: Mapping[str, object] = MappingProxyType({}),
) -> RequestContext:
    scope: dict[str, Any] = {
        "method": "POST",
        "path": "/v1/topics/orders/messages",
        "query_string": query,
        "headers": list(headers),
        **within,
    }
    return RequestContext(
        scope, cast("Any", None), cast("Any", None), b"id", MemoryBudget(Limits())
    )


def admission(**more: Any) -> Admission:
    return Admission(header_block_bytes_max=256, local_only=True, **more)


def closed() -> Admission:
    """Of a node that asks for a key, and knows none."""
    access = Access()
    access.show(())
    return admission(credentials=Credentials(cast("Any", access), cast("Any", None)))


def test_the_headers_of_a_message_are_kept_and_those_of_every_request_are_not() -> None:
    exchange = asked([HOST, (b"mq-tag", b"a"), (b"mq-request-id", b"x-1"), (b"mq-keys", b"k")])
    admission().admit(exchange)
    assert exchange.mq_headers == [(b"mq-tag", b"a"), (b"mq-keys", b"k")]
    assert exchange.request_id == b"x-1"


def test_a_header_that_ends_like_ours_is_not_ours() -> None:
    exchange = asked([HOST, (b"x-mq-tag", b"a")])
    admission().admit(exchange)
    assert exchange.mq_headers == []


def test_a_server_that_counts_while_it_reads_is_not_counted_again() -> None:
    large = (b"x", b"y" * 256)
    with pytest.raises(HeadersTooLarge):
        admission().admit(asked([HOST, large]))
    admission().admit(asked([HOST, large], within={CONNECTION: ConnectionMemory()}))


def test_a_host_that_was_found_local_stays_so_and_another_does_not_become_it() -> None:
    room = admission()
    for _ in range(2):
        room.admit(asked())
        with pytest.raises(Forbidden):
            room.admit(asked([(b"host", b"evil.example")]))
        with pytest.raises(Forbidden):
            room.admit(asked([HOST, (b"origin", b"http://evil.example")]))


@pytest.mark.parametrize("said", [b"", b"maybe", b"YES"])
def test_forward_is_yes_or_no(said: bytes) -> None:
    with pytest.raises(InvalidRequest):
        admission().admit(asked([HOST, (b"mq-forward", said)]))


def test_what_is_wrong_is_told_of_only_to_who_may_ask() -> None:
    room = closed()
    assert room.is_closed
    with pytest.raises(Unauthorized):
        room.admit(asked([HOST, (b"mq-forward", b"maybe")]))
    with pytest.raises(MalformedRequest):  # two keys are not even looked at
        room.admit(asked([HOST, *[(b"authorization", b"Bearer x")] * 2]))


def test_another_node_is_not_asked_for_a_host() -> None:
    room = closed()

    class OfNode:
        is_of_node = True

    exchange = asked([(b"host", b"elsewhere")], within={RELAYED: OfNode()})
    room.admit(exchange)
    assert exchange.caller is OPEN
    assert exchange.is_decided


def test_a_namespace_is_taken_out_of_the_request() -> None:
    room = admission(namespaces=lambda: {"shop"})
    exchange = asked(query=b"queue_id=0&namespace=shop")
    room.admit(exchange)
    room.resolve_namespace(exchange)
    assert (exchange.namespace, exchange.query) == ("shop", b"queue_id=0")
    assert exchange.scope[RAW_QUERY] == b"queue_id=0&namespace=shop"
    with pytest.raises(NamespaceNotFound):
        room.resolve_namespace(asked(query=b"namespace=other"))


def test_who_is_bound_to_a_namespace_stays_in_it() -> None:
    exchange = asked()
    bind(exchange, "shop")
    bind(exchange, "shop")
    assert exchange.namespace == "shop"
    with pytest.raises(NotPermitted):
        bind(exchange, "other")
