"""Requests that must be refused, and what every refusal must look like."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from typing_extensions import override

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Bad:
    """A request that must be refused. `{t}` in the path is a topic with two empty queues."""

    about: str
    method: str
    path: str
    status: int
    code: str
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    pointer: str = ""

    @override
    def __str__(self) -> str:
        return f"{self.method} {self.about}"


def check_refusal(http: httpx.Client, topic: str, bad: Bad, *, sends: bool = False) -> None:
    """Make the request: a whole problem document comes back, and nothing is stored."""
    path = bad.path.replace("{t}", topic)
    answer = http.request(bad.method, path, content=bad.content, headers=dict(bad.headers))
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (bad.status, bad.code), problem
    assert problem["status"] == bad.status
    assert problem["type"].endswith("#" + bad.code)
    assert problem["instance"] == httpx.URL(path).raw_path.partition(b"?")[0].decode()
    assert problem["request_id"] == answer.headers["mq-request-id"]
    assert problem["title"]
    assert problem["detail"]
    assert problem["retryable"] is False
    assert problem.get("hint", "").startswith(bad.hint.replace("{t}", topic))
    if bad.pointer:
        assert bad.pointer in [entry["pointer"] for entry in problem["errors"]]
    assert problem.get("outcome") == ("not_stored" if sends else None)
    if bad.status == 405:
        assert answer.headers["allow"] == bad.hint.removeprefix("allowed: ")
    stats = http.get(f"/v1/topics/{topic}/stats").json()
    assert stats["depth"] == 0
