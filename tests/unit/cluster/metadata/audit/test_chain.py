"""The chain of the audit: what breaks it, and what is told of once."""

import json

import pytest

from app.cluster.metadata.audit.chain import (
    FIRST_LINK,
    KEPT_FROM,
    AuditEntry,
    ChainCheck,
    Linked,
    link_of,
)

KEY = b"k" * 32
NODE = "node-1"


def entry(seq: int, *, resource: str = "topic:orders", after: str | None = None) -> AuditEntry:
    who = ("ann", "127.0.0.1:5", "r", None)
    return AuditEntry(NODE, seq, 1_000 + seq, *who, "UPDATE", resource, "done", None, after, "one")


def chained(entries: list[AuditEntry], key: bytes | None = KEY) -> list[Linked]:
    found: list[Linked] = []
    previous = FIRST_LINK
    for each in entries:
        signed = each if key is not None else each._replace(key_id=None)
        found.append(Linked(signed, previous, link_of(signed, previous, key)))
        previous = found[-1].link
    return found


def findings(chain: list[Linked], key: bytes | None = KEY, key_id: str = "one") -> list[str]:
    check = ChainCheck(key, key_id)
    for each in chain:
        check.look(each)
    return [f"{each.seq}: {each.what}" for each in check.findings()]


CHAIN = chained([entry(seq) for seq in (1, 2, 3)])


def test_a_chain_as_it_was_written_holds() -> None:
    assert findings(CHAIN) == []


def test_a_changed_entry_is_found() -> None:
    changed = CHAIN[1]._replace(entry=CHAIN[1].entry._replace(principal="bob"))
    assert findings([CHAIN[0], changed, CHAIN[2]]) == ["2: it was changed"]


def test_an_entry_that_is_taken_out_is_found() -> None:
    assert findings([CHAIN[0], CHAIN[2]]) == ["2: entries 2 to 2 are missing"]
    assert findings(CHAIN[1:]) == [
        "2: entries before it are missing; those from 1 on should be there"
    ]


def test_an_entry_that_is_put_in_place_of_another_is_found() -> None:
    forged = Linked(entry(2), FIRST_LINK, link_of(entry(2), FIRST_LINK, KEY))
    assert findings([CHAIN[0], forged, CHAIN[2]]) == [
        "2: it does not follow the entry before",
        "3: it does not follow the entry before",
    ]


def test_what_was_deleted_by_time_is_not_missing() -> None:
    kept = json.dumps({"kept_from": 2})
    chain = chained([entry(1), entry(2), entry(3, resource=KEPT_FROM, after=kept)])
    assert findings(chain[1:]) == []


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        (CHAIN, "1: not checked: it is signed with another key (one)"),
        (
            chained([entry(1), entry(2)], key=None),
            "1: not signed: whoever can write the database could have made it anew",
        ),
    ],
)
def test_entries_that_cannot_be_checked_are_told_of_once(chain: list[Linked], said: str) -> None:
    assert findings(chain, KEY, "two") == [said]
