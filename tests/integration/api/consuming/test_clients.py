"""Who consumes and who produces, as a real node lists it."""

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import httpx
import pytest

AGENT = {"user-agent": "curlew-client-python/1.2 (x)"}


def test_consumers_are_listed_by_what_they_say(http: httpx.Client, topic: str) -> None:
    base, group = f"/v1/topics/{topic}", f"of-{topic}"
    http.put(f"/v1/groups/{group}", json={"max_in_flight_per_member": 5}).raise_for_status()
    for _ in range(3):
        http.post(f"{base}/messages", content=b"x").raise_for_status()
    receive = f"{base}/groups/{group}/messages:receive"
    query = "?client_id=worker-9&filter=*&max_messages=2"
    http.post(receive + query, headers=AGENT).raise_for_status()
    http.post(receive).raise_for_status()
    found = http.get(f"/v1/groups/{group}/clients").json()
    assert found["partial"] == []
    nameless, worker = found["clients"]
    assert (worker["client_id"], worker["kind"], worker["version"]) == (
        "worker-9",
        "receive",
        "1.2",
    )
    assert worker["address"] == "127.0.0.1"
    assert worker["topics"] == [{"topic": topic, "filter": "*"}]
    assert worker["in_flight"] == 2
    assert worker["rate_per_s"] > 0
    assert worker["first_seen_ms"] <= worker["last_seen_ms"]
    assert nameless["client_id"] is None
    assert nameless["topics"] == [{"topic": topic, "filter": None}]

    by_header = {"MQ-Client-Id": "worker-8"}
    http.post(receive, headers=by_header).raise_for_status()
    refused = http.post(f"{receive}?client_id=worker-7", headers=by_header)
    assert refused.json()["parameter"] == "client_id"
    http.post(f"{base}/messages", content=b"x").raise_for_status()
    with http.stream(
        "GET", f"{base}/groups/{group}/stream?max_messages=1", headers={"MQ-Client-Id": "worker-6"}
    ) as stream:
        stream.read()
    long_name = http.get(f"{base}/groups/{group}/stream", headers={"MQ-Client-Id": "w" * 256})
    assert (long_name.status_code, long_name.json()["header"]) == (400, "MQ-Client-Id")
    for path in (f"{base}/queues/0/messages?offset=0", "/v1/topics"):
        assert http.get(path, headers=by_header).status_code == 200
    rows = http.get(f"/v1/groups/{group}/clients").json()["clients"]
    assert {(each["client_id"], each["kind"]) for each in rows} >= {
        ("worker-8", "receive"),
        ("worker-6", "stream"),
    }

    named = http.get("/v1/clients/worker-9").json()
    assert group in {each["group"] for each in named["consumes"]}
    text = http.get("/metrics").text
    assert f'consumer_group="{group}",consume_mode="pop",language="python",version="1.2",' in text


def test_a_list_has_pages_and_a_prefix(http: httpx.Client, topic: str) -> None:
    group = f"paged-{topic}"
    receive = f"/v1/topics/{topic}/groups/{group}/messages:receive"
    for name in ("b1", "a", "b2", "b3"):
        http.post(f"{receive}?client_id={name}").raise_for_status()
    names: list[str] = []
    token, page = "", {}
    for expected in (2, 1):
        page = http.get(f"/v1/groups/{group}/clients?prefix=b&page_size=2{token}").json()
        assert len(page["clients"]) == expected
        names += [each["client_id"] for each in page["clients"]]
        token = f"&page_token={page['next_page_token']}"
    assert names == ["b1", "b2", "b3"]
    assert page["next_page_token"] is None
    for query in ("page_size=0", "page_size=1001", "page_token=x", "page_token=MTph"):
        refused = http.get(f"/v1/groups/{group}/clients?{query}")
        assert (refused.status_code, refused.json()["code"]) == (400, "ILLEGAL_PAGE")


def test_a_member_is_listed_with_its_queues(http: httpx.Client, topic: str) -> None:
    group = f"members-{topic}"
    body = {"subscriptions": [{"topic": topic, "filter": "a"}], "generation": 0}
    http.put(f"/v1/groups/{group}/members/m1", json=body).raise_for_status()
    (member,) = http.get(f"/v1/groups/{group}/clients").json()["clients"]
    assert (member["client_id"], member["kind"], member["assigned"]) == ("m1", "heartbeat", 2)
    assert member["topics"] == [{"topic": topic, "filter": "a"}]


def test_producers_are_listed_by_name_or_address(http: httpx.Client, topic: str) -> None:
    base = f"/v1/topics/{topic}/messages"
    for _ in range(2):
        http.post(base, content=b"x", headers=AGENT).raise_for_status()
    assert http.post(f"{base}?queue_id=99", content=b"x").status_code == 404
    numbered = {"mq-producer-id": f"shop-{topic}", "mq-producer-epoch": "1", "mq-producer-seq": "0"}
    http.post(base, content=b"x", headers=numbered).raise_for_status()
    nameless, shop = http.get(f"/v1/topics/{topic}/producers").json()["clients"]
    assert (nameless["client_id"], nameless["sent"], nameless["failed"]) == (None, 2, 1)
    assert (nameless["address"], nameless["version"]) == ("127.0.0.1", "1.2")
    assert (shop["producer_id"], shop["sent"], shop["failed"]) == (f"shop-{topic}", 1, 0)
    found = http.get(f"/v1/clients/shop-{topic}").json()
    assert [each["sent"] for each in found["produces"]] == [1]

    http.delete(f"/v1/topics/{topic}").raise_for_status()
    assert http.get(f"/v1/topics/{topic}/producers").status_code == 404
    http.put(f"/v1/topics/{topic}", json={}).raise_for_status()
    assert http.get(f"/v1/topics/{topic}/producers").json()["clients"] == []


def test_who_is_not_there_is_404(http: httpx.Client) -> None:
    for path, code in (
        ("/v1/groups/nobody/clients", "CONSUMER_GROUP_NOT_FOUND"),
        ("/v1/topics/nothing/producers", "TOPIC_NOT_FOUND"),
        ("/v1/clients/nobody", "CLIENT_NOT_FOUND"),
    ):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, code)


ODD_IDS = (
    *(
        "a/b",
        "/",
        "//",
        "a/",
        "/a",
        "a%2Fb",
        "a%252Fb",
        "%",
        "a b",
        " a ",
        ".",
        "..",
        "../..",
        "a/../b",
    ),
    *(
        "a?b",
        "a#b",
        "a&b=c",
        "a;b",
        "a:receive",
        "a\\b",
        'a"b',
        "<b>",
        "東京",
        "é",
        "a\u2028b",
        "\u202eab",
    ),
    *("{client_id}", "a\tb", "\ufdd0", "w" * 127),
)


@pytest.mark.parametrize("client_id", ODD_IDS)
def test_a_client_is_found_whatever_it_calls_itself(
    http: httpx.Client, topic: str, client_id: str
) -> None:
    base, name = f"/v1/topics/{topic}", quote(client_id, safe="")
    receive = f"{base}/groups/odd-{topic}/messages:receive?client_id={name}"
    http.post(receive).raise_for_status()
    sent = http.post(f"{base}/messages", content=b"x", headers={"MQ-Client-Id": name})
    sent.raise_for_status()
    found = got(http, f"/v1/clients/{name}")
    assert found["client_id"] == client_id
    assert [each["group"] for each in found["consumes"]] == [f"odd-{topic}"]
    assert [each["topics"][0]["topic"] for each in found["produces"]] == [topic]
    assert {each["client_id"] for each in found["produces"]} == {client_id}
    page = http.get("/ui/clients", params={"client": client_id})
    assert ">Consumes</h2>" in page.text
    assert ">Produces</h2>" in page.text
    link = f'href="./clients?client={quote(client_id)}"'
    assert link in http.get("/ui/clients", params={"topic": topic}).text
    assert quote(client_id) in http.get(f"/ui/groups/odd-{topic}/clients").text


def got(http: httpx.Client, target: str) -> dict[str, Any]:
    """What the node answers at a path as it stands; httpx takes `..` out of it."""
    connection = HTTPConnection(http.base_url.host, http.base_url.port)
    with closing(connection):
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read()
    assert answer.status == 200, body
    document: dict[str, Any] = json.loads(body)
    return document


def test_a_name_is_the_same_in_a_header_and_in_a_query(http: httpx.Client, topic: str) -> None:
    name, base = quote("工人 1"), f"/v1/topics/{topic}"
    for asked, headers in (({"client_id": "工人 1"}, {}), ({}, {"MQ-Client-Id": name})):
        sent = http.post(f"{base}/messages", params=asked, content=b"x", headers=headers)
        sent.raise_for_status()
    http.post(f"{base}/messages", content=b"x", headers={b"MQ-Client-Id": b"caf\xe9"})
    (row,) = (each for each in http.get(f"{base}/producers").json()["clients"] if each["sent"] == 2)
    assert row["client_id"] == "工人 1"


@pytest.mark.parametrize(("letter", "count"), [("工", 30), ("東", 127)])
def test_percent_encoding_does_not_count_in_the_length_of_a_name(
    http: httpx.Client, topic: str, letter: str, count: int
) -> None:
    name, receive = letter * count, f"/v1/topics/{topic}/groups/long-{topic}/messages:receive"
    for asked, headers in (({"client_id": name}, {}), ({}, {"MQ-Client-Id": quote(name)})):
        http.post(receive, params=asked, headers=headers).raise_for_status()
    (row,) = http.get(f"/v1/groups/long-{topic}/clients").json()["clients"]
    assert row["client_id"] == name
    refused = http.post(receive, headers={"MQ-Client-Id": quote(letter * 256)})
    assert (refused.status_code, refused.json()["header"]) == (400, "MQ-Client-Id")


def test_a_slash_that_parts_nothing_leads_nowhere_else(http: httpx.Client, topic: str) -> None:
    for path in (f"/v1/topics/{topic}%2Fsettings", "/v1%2Ftopics", "/v1/clients%2Fa"):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["code"] != "OK") in {(404, True), (400, True)}
