# Made from aio/admin/messages.py by make_blocking.py. Change that, and run it.
"""Messages that are stored, and what became of them."""

from typing import Literal

from curlew_client.blocking.admin.asking import Asking
from curlew_client.documents.groups import Delivery
from curlew_client.documents.messages import (
    BrowseAnswer,
    MessageView,
    Trace,
    TraceList,
    TraceResult,
)
from curlew_client.wire.http1 import path_part as part


class Messages(Asking):
    """Messages that are stored, and what became of them."""

    def get_message(
        self,
        topic: str,
        message_id: str,
        *,
        format: Literal["json", "raw"] | None = None,
        body: Literal["auto", "base64"] | None = None,
    ) -> MessageView:
        """Read one message by its id."""
        return self._ask(
            MessageView,
            "GET",
            f"/v1/topics/{part(topic)}/messages/{part(message_id)}",
            params={"format": format, "body": body},
        )

    def get_delivery(self, topic: str, message_id: str, *, group: str) -> Delivery:
        """Why a message is not delivered to a group."""
        return self._ask(
            Delivery,
            "GET",
            f"/v1/topics/{part(topic)}/messages/{part(message_id)}/delivery",
            params={"group": group},
        )

    def get_trace(self, topic: str, message_id: str, *, group: str | None = None) -> Trace:
        """What became of a message."""
        return self._ask(
            Trace,
            "GET",
            f"/v1/topics/{part(topic)}/messages/{part(message_id)}/trace",
            params={"group": group},
        )

    def browse_messages(
        self,
        topic: str,
        *,
        body: Literal["auto", "base64"] | None = None,
        cursor: str | None = None,
        direction: Literal["forward", "backward"] | None = None,
        filter: str | None = None,
        from_ms: int | None = None,
        key: str | None = None,
        page_size: int | None = None,
        property: str | None = None,
        tag: str | None = None,
        text: str | None = None,
        unique_id: str | None = None,
        until_ms: int | None = None,
    ) -> BrowseAnswer:
        """Look through the messages of all queues."""
        return self._ask(
            BrowseAnswer,
            "GET",
            f"/v1/topics/{part(topic)}/messages",
            params={
                "body": body,
                "cursor": cursor,
                "direction": direction,
                "filter": filter,
                "from_ms": from_ms,
                "key": key,
                "page_size": page_size,
                "property": property,
                "tag": tag,
                "text": text,
                "unique_id": unique_id,
                "until_ms": until_ms,
            },
        )

    def search_topic_traces(
        self,
        topic: str,
        *,
        group: str | None = None,
        client_id: str | None = None,
        key: str | None = None,
        result: TraceResult | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        page_token: str | None = None,
        page_size: int | None = None,
    ) -> TraceList:
        """Search the traces of a topic."""
        return self._ask(
            TraceList,
            "GET",
            f"/v1/topics/{part(topic)}/trace",
            params={
                "group": group,
                "client_id": client_id,
                "key": key,
                "result": result,
                "since_ms": since_ms,
                "until_ms": until_ms,
                "page_token": page_token,
                "page_size": page_size,
            },
        )

    def search_traces(
        self,
        *,
        group: str | None = None,
        client_id: str | None = None,
        result: TraceResult | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        page_token: str | None = None,
        page_size: int | None = None,
    ) -> TraceList:
        """Search the traces of all topics."""
        return self._ask(
            TraceList,
            "GET",
            "/v1/trace",
            params={
                "group": group,
                "client_id": client_id,
                "result": result,
                "since_ms": since_ms,
                "until_ms": until_ms,
                "page_token": page_token,
                "page_size": page_size,
            },
        )
