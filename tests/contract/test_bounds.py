"""Every value of every operation at its bounds and beyond, over HTTP, made from the document.

A node refuses what it does not take with a problem that has a code and a sentence, fails at
nothing, and keeps what it holds: a message that was sent before is there, and sends and acks go on,
behind each operation and behind a kill. What one such request did to a node once: it left a hole in
the log, shifted the queue behind it, made all groups forget acks, and stopped redelivery.
"""

import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from app.api.http.errors import error_codes
from tests.support.bounds.requests import LIVE, Request, all_requests
from tests.support.nodes.node import ROOT, RunningNode, run_node
from tests.support.whole_document import with_all_answers

DOCUMENT = with_all_answers(json.loads((ROOT / "openapi" / "openapi.json").read_text()))
STATUSES: dict[str, set[str]] = {
    operation["operationId"]: set(operation["responses"])
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
}
CODES = frozenset(each.code for each in error_codes())
PROBLEM = "application/problem+json"
MAY_FAIL = {"request_reply": 504}
"""A request that nobody replies to is answered so."""
IGNORED = ("/queues/0/topic", "/positions/0/topic", "/paused/0/topic")
"""What a poll says of queues that the member does not have, whatever their topic is called."""


SCHEDULE = {"cron": "0 3 * * *", "topic": "orders", "message": {"text": "x"}}
POLICY = {"subject": "principal:nobody", "actions": ["PUB"], "resources": ["topic:payments-*"]}


class Answer(NamedTuple):
    """An answer that was read."""

    status: int
    kind: str
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Client:
    """One connection, made anew when the node has closed it. `http.client` takes longer to read
    an answer than the node takes to give it."""

    def __init__(self, node: RunningNode, key: str) -> None:
        self._port = node.port
        self._key = key.encode()
        self._connection: socket.socket | None = None
        self._read: BufferedReader | None = None

    def close(self) -> None:
        for each in (self._read, self._connection):
            if each is not None:
                each.close()
        self._connection = None

    def ask(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, bytes] = {}
    ) -> Answer:
        """A request; its body as it is, or as JSON."""
        given = {"Host": b"127.0.0.1", "Authorization": b"Bearer " + self._key, **headers}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given.setdefault("Content-Type", b"application/json")
        if body is not None:
            given["Content-Length"] = b"%d" % len(body)
        lines = [f"{method} {target} HTTP/1.1".encode()]
        lines += [name.encode() + b": " + value for name, value in given.items()]
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), 10)
            self._read = self._connection.makefile("rb")
        self._connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + (body or b""))
        return self._answer(is_head=method == "HEAD")

    def _answer(self, *, is_head: bool) -> Answer:
        read = self._read
        assert read is not None
        status = int(read.readline().split()[1])
        fields: dict[bytes, bytes] = {}
        while (line := read.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        content = b""
        if b"content-length" in fields and not is_head:
            content = read.read(int(fields[b"content-length"]))
        elif b"transfer-encoding" in fields:
            while size := int(read.readline(), 16):
                content += read.read(size)
                read.readline()
            read.readline()
        if fields.get(b"connection") == b"close":
            self.close()
        return Answer(status, fields.get(b"content-type", b"").decode().partition(";")[0], content)

    def done(self, method: str, target: str, body: Any = None) -> Any:
        """What is answered to a request that has to succeed."""
        answer = self.ask(method, target, body)
        assert answer.status < 300, f"{method} {target}: {answer.content!r}"
        return answer.json if answer.content else None


class World:
    """A node with what operations name, and a topic and a group that no request names."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._live: dict[str, str] = {}
        self.kept: list[str] = []

    def fill(self) -> None:
        client = self.client
        for topic in ("orders", "changed", "shipments"):
            client.done("PUT", f"/v1/topics/{topic}", {"queues": 2, "flush": "async"})
        for group in ("billing", "changed", "readers", "lockers", "committers"):
            client.done("PUT", f"/v1/groups/{group}", {})
        client.done("PUT", "/v1/groups/free", {"subscription": "free"})
        offsets = {"offsets": [{"queue_id": 0, "offset": 0}]}
        client.done("PUT", "/v1/groups/committers/offsets/changed", offsets)
        client.done("PUT", "/v1/groups/billing/snapshots/first")
        client.done("PUT", "/v1/namespaces/shop")
        client.done("PUT", "/v1/schedules/first", SCHEDULE)
        client.done("PUT", "/v1/policies/first", POLICY)
        sent = "/v1/topics/orders/messages?client_id=m1&producer_id=loader"
        client.done("POST", f"{sent}&producer_epoch=1&producer_seq=0", b"x")
        client.done("PUT", "/v1/topics/kept", {"queues": 1})
        client.done("PUT", "/v1/groups/keeper", {})
        client.done("PUT", "/v1/principals/first", {"roles": ["producer"]})
        self.check()

    def resolved(self, request: Request) -> Request:
        """With live things in the place of their names."""
        target, body = request.target, request.body
        for name in LIVE:
            mark = "{" + name + "}"
            if mark in target or (body is not None and mark.encode() in body):
                value = self._live.get(name) or self._make(name)
                self._live[name] = value
                target = target.replace(mark, value.strip('"'))
                body = body and body.replace(f'"{mark}"'.encode(), value.encode())
        return request._replace(target=target, body=body)

    def forget(self) -> None:
        """Of what was named it is not known whether it is still there."""
        self._live.clear()

    def _make(self, name: str) -> str:
        client = self.client
        send = "/v1/topics/orders/messages"
        match name:
            case "handle":
                client.done("POST", f"{send}?queue_id=0", b"x")
                receive = "/v1/topics/orders/groups/billing/messages:receive"
                [message] = client.done("POST", receive, {"invisible": "1h"})["messages"]
                return json.dumps(message["receipt_handle"])
            case "recall_handle":
                return str(client.done("POST", f"{send}?delay=2h", b"x")["recall_handle"])
            case "message_id":
                return str(client.done("POST", send, b"x")["message_id"])
            case "transaction_id":
                prepared = f"{send}?transaction=prepare&producer_group=payers"
                return str(client.done("POST", prepared, b"x")["transaction_id"])
            case "key_id":
                client.ask("DELETE", "/v1/principals/first")
                client.done("PUT", "/v1/principals/first", {"roles": ["producer"]})
                return str(client.done("POST", "/v1/principals/first/keys")["id"])
            case "generation":
                beat = {"subscriptions": [{"topic": "orders"}], "generation": 0}
                joined = client.done("PUT", "/v1/groups/lockers/members/m1", beat)
                return str(joined["generation"])
            case "operation_id":
                redrive = "/v1/groups/billing/dlq/messages:redrive"
                return str(client.done("POST", redrive, {"all": True})["operation_id"])
        return "0" * 32

    def check(self) -> None:
        """What was sent before is there, in its place, and a send and an ack are done."""
        number = len(self.kept)
        sent = self.client.done("POST", "/v1/topics/kept/messages", b"%d" % number)
        assert sent["queue_offset"] == number
        self.kept.append(str(number))
        self.look()
        group = "/v1/topics/kept/groups/keeper/messages"
        received = self.client.done("POST", f"{group}:receive", {})["messages"]
        assert [each["text"] for each in received] == [str(number)]
        handles = [each["receipt_handle"] for each in received]
        assert self.client.done("POST", f"{group}:settle", {"acks": handles})["succeeded"] == 1

    def look(self) -> None:
        """All that was sent is there, in its place, without a gap."""
        pull = "/v1/topics/kept/queues/0/messages?offset=0&max_messages=256"
        pulled = self.client.done("GET", pull)
        assert [each["text"] for each in pulled["messages"]] == self.kept
        assert "gaps" not in pulled


def fault_of(request: Request, answer: Answer) -> str | None:
    """What is wrong with an answer; None: nothing."""
    status = answer.status
    if str(status) not in STATUSES[request.operation_id]:
        return "undocumented status"
    if status >= 500 and MAY_FAIL.get(request.operation_id) != status:
        return "failed"
    is_partly_refused = status == 207 and b'"code":' in answer.content
    if request.must_be_taken and (status >= 400 or is_partly_refused):
        return "refused though nothing is wrong"
    if status < 400:
        is_told = b'"code":' in answer.content or request.where.endswith(IGNORED)
        return (
            None if is_told or not request.must_be_refused else "taken beyond the document's bound"
        )
    if request.method == "HEAD":
        return None
    if answer.kind != PROBLEM:
        return f"refused with {answer.kind}"
    problem = answer.json
    if problem["code"] not in CODES or " " not in problem["detail"]:
        return "refused without a code or a sentence"
    if len(answer.content) > len(request.target) + 8_000:
        return "refused with all that was sent"
    return None


def faults_of(world: World, requests: Iterable[Request]) -> Iterator[str]:
    """What is wrong with the answers to the requests of one operation."""
    world.forget()
    for request in map(world.resolved, requests):
        answer = world.client.ask(request.method, request.target, request.body, request.headers)
        if answer.status < 300 and request.method != "GET":
            world.forget()
        if fault := fault_of(request, answer):
            yield f"{fault}: {answer.status} to {request}: {answer.content[:200]!r}"


@contextmanager
def filled(node: RunningNode, key_file: Path) -> Iterator[World]:
    with closing(Client(node, key_file.read_text().strip())) as client:
        world = World(client)
        world.fill()
        yield world


def test_no_value_of_any_operation_fails_or_leaves_anything(tmp_path: Path) -> None:
    data, key_file = tmp_path / "data", tmp_path / "admin.key"
    environment = {"CURLEW_ADMIN_KEY_FILE": str(key_file)}
    walked = groupby(all_requests(DOCUMENT), key=lambda each: each.operation_id)
    faults: list[str] = []
    asked: set[str] = set()
    with run_node(data, environment=environment) as node, filled(node, key_file) as world:
        for operation_id, requests in walked:
            faults += faults_of(world, requests)
            asked.add(operation_id)
            world.check()
        node.kill()
    assert not faults, f"{len(faults)} faults, the first of which are:\n" + "\n".join(faults[:20])
    assert asked == STATUSES.keys()
    with run_node(data, environment=environment) as node:
        with closing(Client(node, key_file.read_text().strip())) as client:
            world.client = client
            world.look()
            world.check()
        assert "Traceback" not in node.log.read_text()
