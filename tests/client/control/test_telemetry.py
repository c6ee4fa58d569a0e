"""Spans and lines of the client's sends and handlers."""

import asyncio
import logging
from typing import Any

import pytest
from curlew_client import AsyncClient, Client, Message, Received, Worker
from curlew_client.errors import ServiceError
from curlew_client.hooks import Hook
from curlew_client.telemetry.lines import LogHook
from curlew_client.telemetry.spans import SpanHook
from curlew_client.testing import TestNode
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, get_current_span

from tests.support.nodes.waiting import until, wait_until


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def hook(exporter: InMemorySpanExporter) -> SpanHook:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return SpanHook(provider)


def spans_of(exporter: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [each for each in exporter.get_finished_spans() if each.kind is kind]


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("messaging."): v for name, v in (span.attributes or {}).items()}


def test_a_handler_goes_on_with_the_trace_of_the_send(
    curlew_node: TestNode, exporter: InMemorySpanExporter, hook: SpanHook
) -> None:
    current: list[int] = []
    with Client(curlew_node.url, hooks=[hook]) as curlew:
        curlew.admin.put_topic("spanned", queues=1)
        curlew.admin.put_group("spanned", start="earliest")
        sent = curlew.send("spanned", b"four")
        worker = Worker(curlew)

        @worker.consumer("spanned", group="spanned")
        def handle(message: Received[None]) -> None:
            current.append(get_current_span().get_span_context().span_id)
            raise OSError(f"bank closed, {message.attempt}")

        with worker:
            wait_until(lambda: bool(spans_of(exporter, SpanKind.CONSUMER)))
    [send] = spans_of(exporter, SpanKind.PRODUCER)
    process = spans_of(exporter, SpanKind.CONSUMER)[0]
    assert (send.name, process.name) == ("send spanned", "process spanned")
    assert attributes_of(send) == {
        "system": "curlew",
        "operation.name": "send",
        "operation.type": "send",
        "destination.name": "spanned",
        "message.body.size": 4,
        "message.id": sent.message_id,
    }
    assert attributes_of(process) == {
        "system": "curlew",
        "operation.name": "process",
        "operation.type": "process",
        "destination.name": "spanned",
        "destination.partition.id": "0",
        "consumer.group.name": "spanned",
        "message.body.size": 4,
        "message.id": sent.message_id,
        "error.type": "OSError",
    }
    assert send.context is not None
    assert process.context is not None
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == send.context.trace_id
    assert process.context.span_id == current[0]
    assert not process.status.is_ok
    assert not get_current_span().get_span_context().is_valid


def test_a_handler_of_several_is_linked_to_their_sends(
    curlew_node: TestNode, exporter: InMemorySpanExporter, hook: SpanHook
) -> None:
    handled: list[int] = []

    async def run() -> None:
        async with AsyncClient(curlew_node.url, hooks=[hook]) as curlew:
            await curlew.admin.put_topic("linked", queues=1)
            await curlew.admin.put_group("linked", start="earliest")
            await curlew.send_batch("linked", [Message("a"), Message("b")])
            worker = Worker(curlew)

            @worker.consumer("linked", group="linked", batch=2)
            async def handle(batch: list[Received[Any]]) -> None:
                handled.append(len(batch))

            async with worker:
                await until(lambda: bool(spans_of(exporter, SpanKind.CONSUMER)))

    asyncio.run(run())
    [send] = spans_of(exporter, SpanKind.PRODUCER)
    process = spans_of(exporter, SpanKind.CONSUMER)[0]
    assert attributes_of(send)["batch.message_count"] == 2
    assert attributes_of(process)["batch.message_count"] == handled[0] == 2
    assert process.parent is None
    assert send.context is not None
    assert {link.context.span_id for link in process.links} == {send.context.span_id}


def test_a_send_that_fails_says_so_in_its_span(
    curlew_node: TestNode, exporter: InMemorySpanExporter, hook: SpanHook
) -> None:
    with Client(curlew_node.url, hooks=[hook]) as curlew:
        curlew.admin.put_topic("narrow", queues=1)
        with pytest.raises(ServiceError) as caught:
            curlew.send("narrow", b"x", queue_id=3)
    [send] = spans_of(exporter, SpanKind.PRODUCER)
    assert attributes_of(send)["error.type"] == caught.value.code
    assert not send.status.is_ok


def test_a_context_that_the_program_gives_is_kept(curlew_node: TestNode, hook: SpanHook) -> None:
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    with Client(curlew_node.url, hooks=[hook]) as curlew:
        curlew.admin.put_topic("kept", queues=1)
        curlew.send("kept", b"x", properties={"traceparent": own})
        with curlew.receive("kept", group="kept", limit=1) as received:
            [shown] = [message.properties["traceparent"] for message in received]
    assert shown == own


def test_lines_have_their_facts_as_fields(
    curlew_node: TestNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "curlew_client.calls")
    hook: Hook = LogHook()
    with Client(curlew_node.url, hooks=[hook]) as curlew:
        curlew.admin.put_topic("logged", queues=1)
        curlew.admin.put_group("logged", start="earliest")
        sent = curlew.send("logged", b"secret")
        with pytest.raises(ServiceError):
            curlew.send("logged", b"x", queue_id=3)
        worker = Worker(curlew)
        worker.consumer("logged", group="logged")(lambda _message: None)

        def records() -> list[logging.LogRecord]:
            return [each for each in caplog.records if each.name == "curlew_client.calls"]

        with worker:
            wait_until(lambda: len(records()) == 3)
    stored, refused, handled = records()
    assert [each.levelname for each in records()] == ["DEBUG", "WARNING", "DEBUG"]
    assert "failed" in refused.getMessage()
    facts = [(vars(each)["curlew_topic"], vars(each)["curlew_message_id"]) for each in records()]
    assert facts == [("logged", sent.message_id), ("logged", None), ("logged", sent.message_id)]
    assert vars(handled)["curlew_group"] == "logged"
    assert vars(stored)["curlew_ms"] >= 0
    assert "secret" not in stored.getMessage()
