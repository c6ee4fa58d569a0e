"""Drives the client that openapi-python-client made: `python smoke.py http://127.0.0.1:8710`."""

import base64
import sys
import time
from io import BytesIO

from curlew_generated import Client, models
from curlew_generated.api.messages import (
    ack_messages,
    pull_messages,
    receive_messages,
    send_batch,
    send_message,
)
from curlew_generated.api.topics import get_topic, put_topic
from curlew_generated.models.pull_messages_body import PullMessagesBody
from curlew_generated.types import File

EVERY_BYTE = bytes(range(256))


def main(url: str) -> None:
    """Send, read, receive, settle and fail, in a topic of its own."""
    with Client(base_url=url) as client:
        name = f"smoke-{time.time_ns()}"
        topic = put_topic.sync(name, client=client, body=models.TopicBody(queues=1))
        assert (topic.name, topic.queues) == (name, 1)

        raw = File(payload=BytesIO(EVERY_BYTE))
        sent = send_message.sync(name, client=client, body=raw, tag="bytes")
        assert isinstance(sent, models.SendAnswer)
        envelope = models.Envelope(body={"id": 17}, keys=["order-17"])
        send_message.sync(name, client=client, body=envelope)

        pulled = pull_messages.sync(
            name, 0, client=client, offset=0, body=PullMessagesBody.BASE64
        ).messages
        assert base64.b64decode(pulled[0].body_base64) == EVERY_BYTE
        assert (pulled[0].message_id, pulled[0].tag) == (sent.message_id, "bytes")
        # The generated code takes every 200 for JSON; raw answers are read with its httpx client.
        path = f"/v1/topics/{name}/messages/{sent.message_id}?format=raw"
        assert client.get_httpx_client().get(path).content == EVERY_BYTE
        pulled = pull_messages.sync(name, 0, client=client, offset=1).messages
        assert (pulled[0].body, pulled[0].keys) == ({"id": 17}, ["order-17"])

        entries = [models.BatchEntry(text="a", id="1"), models.BatchEntry(text="b", queue_id=9)]
        batch = send_batch.sync(name, client=client, body=models.BatchRequest(messages=entries))
        assert [each.status for each in batch.results] == [201, 404]
        assert batch.results[1].error.code == "QUEUE_NOT_FOUND"

        ten = models.ReceiveBody(max_messages=10)
        leased = receive_messages.sync(name, "smoke", client=client, body=ten)
        handles = [message.receipt_handle for message in leased.messages]
        assert len(handles) == 3
        acks = models.AckBody(receipt_handles=handles)
        settled = ack_messages.sync(name, "smoke", client=client, body=acks)
        assert (settled.succeeded, settled.failed) == (3, 0)

        problem = get_topic.sync(name + "x", client=client)
        assert isinstance(problem, models.Problem)
        assert (problem.code, problem.hint) == ("TOPIC_NOT_FOUND", f"did you mean '{name}'?")
        assert problem.retryable is False


if __name__ == "__main__":
    main(sys.argv[1])
