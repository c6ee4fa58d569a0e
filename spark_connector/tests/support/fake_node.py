"""A node that serves offsets and pull frames from memory, over real HTTP on a free port.

For tests of the connector alone: it can lose messages, cut queues, fail and damage answers on
demand, which a real node must not do.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from spark_connector.tests.support.records import Record, frame, properties

STORE_ID = "0a0b0c0d"


@dataclass
class Queue:
    first: int = 0
    records: list[Record] = field(default_factory=list)
    holes: set[int] = field(default_factory=set)
    """Offsets that the node steps over, as after damage."""
    flushed: int = 0
    """What lies below is there after a power loss."""

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def state(self, number: int) -> dict[str, int | None]:
        sizes = [len(record.encode()) for record in self.records]
        average = -(-sum(sizes) // len(sizes)) if sizes else None
        ends = {"min_offset": self.first, "max_offset": self.end}
        return {"queue_id": number, **ends, "average_bytes": average}

    def remove_before(self, offset: int) -> None:
        del self.records[: offset - self.first]
        self.first = offset

    def cut_at(self, offset: int) -> None:
        del self.records[offset - self.first :]

    def lose_power(self) -> None:
        self.cut_at(max(self.first, self.flushed))

    def flush(self) -> None:
        self.flushed = self.end


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


Fault = Callable[[Reply], Reply]


class FakeNode:
    """Topics by name; `faults` are replies to give instead, the first one to the next request."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Queue]] = {}
        self.generations: dict[str, int] = {}
        self.leaders: dict[tuple[str, int], str] = {}
        """By topic and queue, which address leads it."""
        self.replicas: dict[tuple[str, int], list[str]] = {}
        """The same: which addresses have it in sync, where those are not its leader alone."""
        self.closed: set[tuple[str, int]] = set()
        """Topics and queues that are only read."""
        self.committed: dict[tuple[str, str], dict[int, int]] = {}
        self.sent: list[tuple[str, int, bytes]] = []
        self.seals: list[tuple[str, int]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.connections = 0
        self.after_request: Callable[[str], None] = lambda _path: None
        self.base_url = ""
        self._lock = threading.RLock()
        self._moved = threading.Condition(self._lock)

    def add_topic(self, name: str, queues: int, *, on_new_disk: bool = False) -> None:
        """Make the topic, or make it anew: its offsets then go on where they had ended.

        On a new disk, beside metadata that knows of the earlier topic, they begin at 0 again.
        """
        before = {} if on_new_disk else self.topics.get(name, {})
        ends = {number: queue.end for number, queue in before.items()}
        self.topics[name] = {number: Queue(ends.get(number, 0)) for number in range(queues)}
        self.generations[name] = self.generations.get(name, 0) + 1

    def send(self, topic: str, queue: int, *bodies: bytes, tag: str = "t") -> None:
        target = self.topics[topic][queue]
        with self._lock:
            for body in bodies:
                target.records.append(
                    Record(
                        queue_offset=target.end,
                        body=body,
                        queue=queue,
                        topic=topic.encode(),
                        physical_offset=target.end * 200,
                        properties=properties(("KEYS", f"k{target.end}"), ("TAGS", tag)),
                    )
                )
            self._moved.notify_all()

    def state(self, topics: str) -> str:
        """A token for the ends of the queues."""
        ends = {
            name: [queue.end for queue in self.topics[name].values()]
            for name in topics.split(",")
            if name in self.topics
        }
        return str(hash(str((ends, sorted(self.generations.items())))))

    def answer(self, target: str, method: str = "GET", body: bytes = b"") -> Reply:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = parts.path.split("/")[2:]
        with self._lock:
            if path[-1] == "route":  # asked once in a while, beside what a test looks at
                return self._route_of(path[1])
            self.requests.append(target)
            if "known" in query and not self.faults:
                wait_s = int(query["wait"].removesuffix("ms")) / 1000
                self._moved.wait_for(lambda: self.state(query["topics"]) != query["known"], wait_s)
            reply = self._route(path, query, method, body)
            if self.faults:
                reply = self.faults.pop(0)(reply)
        self.after_request(target)
        return reply

    def _route(self, path: list[str], query: dict[str, str], method: str, body: bytes) -> Reply:
        if path[0] == "groups":
            return self._group(path[1], path[3], method, body)
        if path[0] == "producers:seal":
            seal = json.loads(body)
            self.seals.append((seal["producer"], seal["epoch"]))
            return _json(200, {"producer": seal["producer"], "sealed_epoch": seal["epoch"]})
        if path[0] == "producers:plan":
            return self._plan(json.loads(body))
        if path[0] == "topics:positions":
            return self._positions(query["topics"], query.get("durability", "memory"))
        if len(path) == 1:
            return _json(200, {"topics": [{"name": name} for name in sorted(self.topics)]})
        name = path[1]
        topic = self.topics.get(name)
        if topic is None:
            return _problem(404, code="TOPIC_NOT_FOUND", detail=f"no topic {name!r}")
        if len(path) == 2:
            return _json(200, {"queues": len(topic)})
        if path[2] == "offsets":
            return _json(
                200, {"topic": name, "at": query["at"], "offsets": _offsets(topic, query["at"])}
            )
        if method == "POST":
            self.sent.append((name, int(query.get("queue_id", -1)), body))
            return _json(200, {"status": "SEND_OK"} if "queue_id" in query else {"results": []})
        query.pop("checksum")
        numbers = {key: int(value) for key, value in query.items()}
        return _pull(topic[int(path[3])], numbers)

    def _route_of(self, topic: str) -> Reply:
        rows = [
            {
                "queue_id": queue,
                "shard": leader,
                "leader": leader,
                "perm": "r" if (name, queue) in self.closed else "rw",
                "replicas": self.replicas.get((name, queue), [leader]),
            }
            for (name, queue), leader in self.leaders.items()
            if name == topic
        ]
        return _json(200, {"queues": rows}) if rows else _problem(404, code="NO_ROUTE")

    def _plan(self, wanted: dict[str, Any]) -> Reply:
        topic = self.topics.get(wanted["topic"])
        if topic is None:
            return _problem(404, code="TOPIC_NOT_FOUND", detail=f"no topic {wanted['topic']!r}")
        return _json(200, {"queues": len(topic), "messages_per_turn": wanted["messages_per_turn"]})

    def _positions(self, topics: str, durability: str) -> Reply:
        names = topics.split(",")
        if durability == "flushed":
            for queues in self.topics.values():
                for queue in queues.values():
                    queue.flush()
        found = [
            {
                "topic": name,
                "generation": self.generations[name],
                "queues": [queue.state(number) for number, queue in self.topics[name].items()],
            }
            for name in names
            if name in self.topics
        ]
        missing = [name for name in names if name not in self.topics]
        return _json(200, {"state": self.state(topics), "topics": found, "missing": missing})

    def _group(self, group: str, topic: str, method: str, body: bytes) -> Reply:
        if method == "PUT":
            rows = json.loads(body)["offsets"]
            offsets = {row["queue_id"]: row["offset"] for row in rows}
            if offsets.keys() - self.topics.get(topic, {}).keys():
                return _problem(404, code="QUEUE_NOT_FOUND", detail="all or none")
            self.committed.setdefault((group, topic), {}).update(offsets)
        found = self.committed.get((group, topic))
        if found is None:
            return _problem(404, code="GROUP_NOT_FOUND", detail=f"no group {group!r}")
        rows = [{"queue_id": queue, "offset": offset} for queue, offset in found.items()]
        return _json(200, {"offsets": rows})


def _offsets(topic: dict[int, Queue], at: str) -> list[dict[str, int]]:
    return [
        {"queue_id": number, "offset": _offset_at(queue, at)} for number, queue in topic.items()
    ]


def _offset_at(queue: Queue, at: str) -> int:
    if at in {"earliest", "latest"}:
        return queue.first if at == "earliest" else queue.end
    times = [record.store_ms for record in queue.records]
    return queue.first + sum(time < int(at) for time in times)


def _pull(queue: Queue, query: dict[str, int]) -> Reply:
    offset = query["offset"]
    if offset < queue.first or offset > queue.end:
        status, code = (410, "OFFSET_EXPIRED") if offset < queue.first else (416, "OFFSET_OUT")
        return _problem(status, code=code, min_offset=queue.first, max_offset=queue.end)
    found: list[Record] = []
    end = min(query["until_offset"], queue.end)
    next_offset, size = offset, 0
    while next_offset < end and len(found) < query["max_messages"]:
        record = queue.records[next_offset - queue.first]
        size += len(record.encode())
        if found and size > query["max_bytes"]:
            break
        if next_offset not in queue.holes:
            found.append(record)
        next_offset += 1
    records = [record.encode() for record in found]
    body = frame(records, first_offset=offset, tag_hashes=True)
    headers = {
        "Content-Type": "application/vnd.curlew.batch",
        "MQ-Next-Offset": str(next_offset),
        "MQ-Min-Offset": str(queue.first),
        "MQ-Max-Offset": str(queue.end),
        "MQ-Store-Id": STORE_ID,
    }
    return Reply(200, headers, body)


def _json(status: int, document: object, media_type: str = "application/json") -> Reply:
    return Reply(status, {"Content-Type": media_type}, json.dumps(document).encode())


def _problem(status: int, **members: object) -> Reply:
    return _json(status, {"status": status, **members}, "application/problem+json")


def refusal(status: int, **headers: str) -> Fault:
    """Answer with `status` and a problem document instead."""
    return lambda _reply: Reply(status, headers, b'{"code":"NO","detail":"not now"}')


def damage(position: int = -1) -> Fault:
    """Flip one bit of the answer's body."""

    def flip(reply: Reply) -> Reply:
        body = bytearray(reply.body)
        body[position] ^= 1
        return Reply(reply.status, reply.headers, bytes(body))

    return flip


def truncation(reply: Reply) -> Reply:
    """Announce the whole body and close the connection in the middle of it."""
    half = reply.body[: len(reply.body) // 2]
    return Reply(
        reply.status, {**reply.headers, "Content-Length": str(len(reply.body)), "X-Cut": "1"}, half
    )


@contextmanager
def run_fake_node() -> Iterator[FakeNode]:
    """Serve until the block ends."""
    node = FakeNode()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.node = node
    node.base_url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield node
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    node: FakeNode


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.node.connections += 1

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.node.headers.append(dict(self.headers.items()))
        reply = self.server.node.answer(self.path, self.command, body)
        self.send_response(reply.status)
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)
        if "X-Cut" in reply.headers:
            self.close_connection = True

    do_PUT = do_POST = do_GET  # noqa: N815 - names of the base class

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass
