"""`format=raw` beside what real clients read: Python's http.client and curl, at the bounds."""

import http.client
import json
import subprocess
from collections.abc import Mapping
from urllib.parse import unquote

import httpx
import pytest

from app.domain.limits import Limits
from tests.support.nodes.node import RunningNode

LIMITS = Limits()
MANY = {f"property-{number}": f"é {number}" for number in range(LIMITS.properties_count_max)}
LARGE = {"Big": "x" * (LIMITS.properties_bytes_max - len("Big") - 2)}
WIDE = {"wide": "\u0003" * 12_000}
"""Six bytes for each in JSON, eight in a header."""


def sent(http: httpx.Client, topic: str, properties: Mapping[str, str]) -> str:
    """Send a message with `properties`; its id."""
    answer = http.post(
        f"/v1/topics/{topic}/messages",
        json={"text": "here", "properties": properties},
        headers={"Content-Type": "application/vnd.curlew+json"},
    )
    return str(answer.raise_for_status().json()["message_id"])


def receive(topic: str) -> str:
    return f"/v1/topics/{topic}/groups/of-{topic}/messages:receive"


@pytest.mark.parametrize("properties", [MANY, LARGE], ids=["many", "large"])
def test_http_client_reads_it(
    node: RunningNode, http: httpx.Client, topic: str, properties: dict[str, str]
) -> None:
    sent(http, topic, properties)
    connection = http_client(node)
    try:
        connection.request("POST", f"{receive(topic)}?format=raw")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"here")
        assert json.loads(unquote(answer.headers["MQ-Properties"])) == properties
        assert not [name for name in answer.headers if name.lower().startswith("mq-prop-")]
        handle = answer.headers["MQ-Receipt-Handle"]
    finally:
        connection.close()
    assert http.delete(f"/v1/receipts/{handle}").status_code == 204


def http_client(node: RunningNode) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)


@pytest.mark.parametrize("properties", [MANY, LARGE], ids=["many", "large"])
def test_curl_reads_it(
    node: RunningNode, http: httpx.Client, topic: str, properties: dict[str, str]
) -> None:
    message_id = sent(http, topic, properties)
    url = f"{node.url}/v1/topics/{topic}/messages/{message_id}?format=raw"
    command = ["curl", "-sS", "-D", "/dev/stderr", url]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"here"
    lines = dict(line.split(b": ", 1) for line in done.stderr.splitlines() if b": " in line)
    assert json.loads(unquote(lines[b"mq-properties"].decode())) == properties


def test_what_no_header_carries_is_refused_and_leased_to_nobody(
    http: httpx.Client, topic: str
) -> None:
    message_id = sent(http, topic, WIDE)
    for _ in range(3):
        refused = http.post(f"{receive(topic)}?format=raw&invisible=12h")
        assert (refused.status_code, refused.json()["code"]) == (406, "NOT_ACCEPTABLE")
        assert refused.json()["message_id"] == message_id
        assert "leave out format=raw" in refused.json()["hint"]
    lag = http.get(f"/v1/groups/of-{topic}/lag").json()
    assert (lag["ready"], lag["in_flight"], lag["retrying"]) == (1, 0, 0)
    (message,) = http.post(receive(topic)).json()["messages"]
    assert (message["delivery_attempt"], message["properties"]) == (1, WIDE)


def test_one_message_is_refused_raw_and_given_as_json(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages/{sent(http, topic, WIDE)}"
    refused = http.get(f"{path}?format=raw")
    assert (refused.status_code, refused.json()["code"]) == (406, "NOT_ACCEPTABLE")
    assert http.get(path).json()["properties"] == WIDE
