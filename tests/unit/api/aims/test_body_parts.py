"""Bodies of several shards in parts, and results in the order of the request."""

import msgspec
import pytest

from app.api.aims.across import Document
from app.api.aims.body_parts import parts_of, results_of

BODY = b'{"acks":["a1","b1","a2"],"nacks":[{"receipt_handle":"b2"}],"delay":"1s"}'


def shard_of(raw: bytes) -> str:
    return "a" if b'"a' in raw else "b"


def test_each_shard_gets_its_entries_and_what_is_said_of_all() -> None:
    parts = parts_of(BODY, ("acks", "nacks", "releases"), shard_of)
    assert {shard: msgspec.json.decode(part.body) for shard, part in parts.items()} == {
        "a": {"delay": "1s", "acks": ["a1", "a2"]},
        "b": {"delay": "1s", "acks": ["b1"], "nacks": [{"receipt_handle": "b2"}]},
    }
    assert {shard: part.places for shard, part in parts.items()} == {"a": [0, 2], "b": [1, 3]}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"acks":1}', b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_understood_has_no_parts(body: bytes) -> None:
    assert parts_of(body, ("acks",), shard_of) == {}


def test_an_entry_is_called_by_its_number_in_the_whole() -> None:
    parts = parts_of(b'{"messages":["b",1]}', ("messages",), lambda raw: raw.decode()[0])
    detail = "entry 0 must be an object, not an integer"
    error = {"detail": detail, "errors": [{"pointer": "/messages/0", "detail": detail}]}
    given: dict[str, list[Document]] = {'"': [{"index": 0}], "1": [{"index": 0, "error": error}]}
    told = results_of(parts, given)["results"]
    assert isinstance(told, list)
    words = detail.replace("0", "1")
    moved = {"detail": words, "errors": [{"pointer": "/messages/1", "detail": words}]}
    assert told[1] == {"index": 1, "error": moved}
    # "entry 0" of a list in the message, which goes on being its first
    inner = {"detail": detail, "errors": [{"pointer": "/messages/0/keys/0", "detail": detail}]}
    given["1"] = [{"index": 0, "error": inner}]
    told = results_of(parts, given)["results"]
    assert isinstance(told, list)
    kept = {"detail": detail, "errors": [{"pointer": "/messages/1/keys/0", "detail": detail}]}
    assert told[1]["error"] == kept


def test_results_come_in_the_order_of_the_request() -> None:
    parts = parts_of(b'{"messages":["a","b","a"]}', ("messages",), shard_of)
    error = {"code": "BAD", "errors": [{"pointer": "/messages/1/tag"}, {"pointer": ""}]}
    found = results_of(
        parts,
        {
            "a": [{"index": 0, "status": 201}, {"index": 1, "status": 400, "error": error}],
            "b": [{"index": 0, "status": 201}],
        },
    )
    moved = {"code": "BAD", "errors": [{"pointer": "/messages/2/tag"}, {"pointer": ""}]}
    assert found == {
        "results": [
            {"index": 0, "status": 201},
            {"index": 1, "status": 201},
            {"index": 2, "status": 400, "error": moved},
        ],
        "succeeded": 2,
        "failed": 1,
    }
