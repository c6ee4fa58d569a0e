"""OpenTelemetry's spans of a real node, as a collector gets them."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override

from tests.support.nodes.node import run_node
from tests.support.nodes.waiting import wait_until

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PRODUCER: Final = f"00-{TRACE}-b7ad6b7169203331-01"
CONSUMER: Final = "00-11111111111111111111111111111111-2222222222222222-01"


class Seen(NamedTuple):
    """A span, as the collector was told of it."""

    name: str
    trace_id: str
    parent_id: str
    kind: int
    attributes: dict[str, Any]
    links: list[str]
    """Span ids."""
    is_error: bool


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP on a free port."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Seen] = []
        self.services: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                each.value.string_value
                for each in resource.resource.attributes
                if each.key == "service.name"
            }
            self.spans += [_seen(span) for scope in resource.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        assert self.path == "/v1/traces"
        self.server.take(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    @override
    def log_message(self, *_arguments: object) -> None:
        """Says nothing."""


def _seen(span: Any) -> Seen:
    values = {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }
    links = [link.span_id.hex() for link in span.links]
    where = span.trace_id.hex(), span.parent_span_id.hex()
    return Seen(span.name, *where, span.kind, values, links, span.status.code == 2)


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def traced(
    tmp_path_factory: pytest.TempPathFactory, collector: Collector
) -> Iterator[httpx.Client]:
    environment = {
        "CURLEW_OTEL_TRACES": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    directory = tmp_path_factory.mktemp("spans")
    with (
        run_node(directory / "data", environment=environment) as node,
        httpx.Client(base_url=node.url, timeout=60) as http,
    ):
        yield http


def test_a_message_is_followed_from_its_producer_to_its_ack(
    traced: httpx.Client, collector: Collector
) -> None:
    base = "/v1/topics/orders"
    group = f"{base}/groups/billing"
    sent = traced.post(f"{base}/messages", content=b"paid", headers={"traceparent": PRODUCER})
    theirs = {"traceparent": CONSUMER}
    received = traced.post(f"{group}/messages:receive?client_id=worker-1", headers=theirs)
    [message] = received.json()["messages"]
    assert message["properties"] == {"traceparent": PRODUCER}
    acks = {"acks": [message["receipt_handle"]]}
    traced.post(f"{group}/messages:settle", json=acks, headers=theirs).raise_for_status()
    wait_until(lambda: bool(collector.named("settle orders")))

    [send] = collector.named("send orders")
    assert (send.trace_id, send.parent_id, send.kind) == (TRACE, "b7ad6b7169203331", 2)
    assert send.attributes["messaging.system"] == "curlew"
    assert send.attributes["messaging.operation.type"] == "send"
    assert send.attributes["messaging.destination.name"] == "orders"
    assert send.attributes["messaging.message.id"] == sent.json()["message_id"]
    assert send.attributes["messaging.message.body.size"] == 4
    assert send.attributes["http.response.status_code"] == 201
    [receive] = collector.named("receive orders")
    assert (receive.trace_id, receive.parent_id) == ("1" * 32, "2" * 16)
    assert receive.links == ["b7ad6b7169203331"]
    assert receive.attributes["messaging.consumer.group.name"] == "billing"
    assert receive.attributes["messaging.batch.message_count"] == 1
    [settle] = collector.named("settle orders")
    assert (settle.trace_id, settle.links) == ("1" * 32, ["b7ad6b7169203331"])
    assert collector.services == {"curlew"}


def test_a_send_without_a_context_begins_a_trace(
    traced: httpx.Client, collector: Collector
) -> None:
    traced.post("/v1/topics/plain/messages", content=b"x").raise_for_status()
    received = traced.post("/v1/topics/plain/groups/g/messages:receive?format=raw")
    wait_until(lambda: bool(collector.named("receive plain")))
    [send] = collector.named("send plain")
    assert send.parent_id == ""
    assert received.headers["traceparent"].split("-")[1] == send.trace_id
    handle = received.headers["mq-receipt-handle"]
    traced.delete(f"/v1/receipts/{handle}").raise_for_status()
    wait_until(lambda: bool(collector.named("settle plain")))
    assert len(collector.named("settle plain")[0].links) == 1


def test_messages_of_a_batch_keep_their_own_contexts(
    traced: httpx.Client, collector: Collector
) -> None:
    entries = [{"text": "a", "properties": {"traceparent": PRODUCER}}, {"text": "b"}]
    batch = "/v1/topics/many/messages:batch"
    traced.post(batch, json={"messages": entries}).raise_for_status()
    traced.post("/v1/topics/many/groups/g/messages:receive?max_messages=8").raise_for_status()
    wait_until(lambda: bool(collector.named("receive many")))
    assert collector.named("send many")[0].attributes["messaging.batch.message_count"] == 2
    assert collector.named("receive many")[0].links == ["b7ad6b7169203331"]


def test_what_is_refused_is_an_error(traced: httpx.Client, collector: Collector) -> None:
    refused = traced.post("/v1/topics/wrong/messages", content=b"x", headers={"mq-delay": "soon"})
    assert refused.status_code == 400
    nonsense = {"traceparent": "nonsense"}
    traced.post("/v1/topics/odd/messages", content=b"x", headers=nonsense).raise_for_status()
    wait_until(lambda: bool(collector.named("send odd")))
    [span] = collector.named("send wrong")
    assert span.is_error
    assert span.attributes["error.type"] == refused.json()["code"]
    assert not collector.named("send odd")[0].is_error


def test_a_stop_sends_the_last_spans(tmp_path: Path, collector: Collector) -> None:
    environment = {
        "CURLEW_OTEL_TRACES": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
    }
    with run_node(tmp_path / "data", environment=environment) as node:
        httpx.post(f"{node.url}/v1/topics/late/messages", content=b"x").raise_for_status()
        assert collector.named("send late") == []
        assert node.stop() == 0
    assert len(collector.named("send late")) == 1
