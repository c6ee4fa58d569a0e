"""Drives the client that openapi-generator made: `python smoke.py http://127.0.0.1:8710`."""

import base64
import json
import sys
import time

import curlew_generated as curlew

EVERY_BYTE = bytes(range(256))


def main(url: str) -> None:
    """Send, read, receive, settle and fail, in a topic of its own."""
    with curlew.ApiClient(curlew.Configuration(host=url)) as client:
        topics, messages = curlew.TopicsApi(client), curlew.MessagesApi(client)
        name = f"smoke-{time.time_ns()}"
        assert topics.put_topic(name, topic_body=curlew.TopicBody(queues=1)).queues == 1

        # Without a content type the generated code takes the first that looks like JSON.
        octets = "application/octet-stream"
        sent = messages.send_message(
            name, body=EVERY_BYTE, tag="bytes", keys="a b", _content_type=octets
        )
        assert (sent.status, sent.queue_offset) == ("SEND_OK", 0)
        [message] = messages.pull_messages(name, 0, offset=0, body="base64").messages
        assert base64.b64decode(message.body_base64) == EVERY_BYTE
        assert (message.message_id, message.tag, message.keys) == (
            sent.message_id,
            "bytes",
            ["a", "b"],
        )
        raw = topics.get_message_without_preload_content(name, sent.message_id, format="raw")
        assert raw.data == EVERY_BYTE
        raw.release_conn()

        entries = [curlew.BatchEntry(text="a", id="1"), curlew.BatchEntry(text="b", queue_id=9)]
        batch = messages.send_batch(name, curlew.BatchRequest(messages=entries))
        assert [each.status for each in batch.results] == [201, 404]
        assert batch.results[1].error.code == "QUEUE_NOT_FOUND"

        leased = messages.receive_messages(
            name, "smoke", receive_body=curlew.ReceiveBody(max_messages=10)
        )
        handles = [each.receipt_handle for each in leased.messages]
        assert len(handles) == 2
        settled = messages.ack_messages(name, "smoke", curlew.AckBody(receipt_handles=handles))
        assert (settled.succeeded, settled.failed) == (2, 0)

        try:
            topics.get_topic(name + "x")
        except curlew.ApiException as refused:
            problem = curlew.Problem.from_dict(json.loads(refused.body))
            assert (refused.status, problem.code) == (404, "TOPIC_NOT_FOUND")
            assert problem.hint == f"did you mean '{name}'?"
        else:
            raise AssertionError("a topic that is not there was found")


if __name__ == "__main__":
    main(sys.argv[1])
