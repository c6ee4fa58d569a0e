"""The page of the cluster says of each operation how it is done over shards, as it is described."""

import re
from collections.abc import Mapping
from pathlib import Path

from app.api.aims.across import (
    Closed,
    Committed,
    Copied,
    Ended,
    Followed,
    Gathered,
    InEach,
    InOrder,
    InTurn,
    Kept,
    Leased,
    Polled,
    Split,
    Together,
)
from app.api.control.operation_list import OPERATIONS
from app.api.operations.operation import Operation

PAGE = Path(__file__).parents[4] / "docs" / "running" / "cluster" / "first-cluster.md"
ROWS: Mapping[str, type] = {
    "Split": Split,
    "All shards in one answer": Together,
    "Pages through all shards": InOrder,
    "Changed in all shards": InEach,
    "At the node that has all its queues; of several shards tried": Committed,
    "Closed in all shards": Closed,
    "The highest epoch": Ended,
    "From one shard at a time": InTurn,
    "Taken from each shard": Gathered,
    "Followed in all shards": Followed,
    "Leased from one shard at a time": Leased,
    "Done in all shards": Polled,
    "Kept by the asked node": Kept,
    "The database, once each shard": Copied,
}
"""How rows begin, by what their operations say as `across`."""
AIMED = "At the node that has"


def rows(text: str) -> list[tuple[str, list[str]]]:
    """How it is done, and the ids."""
    table = text.partition("## What each operation is of")[2]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return [(how, re.findall(r"`(\w+)`", ids)) for how, ids in cells[2:]]


def is_as_said(how: str, operation: Operation) -> bool:
    for beginning, across in ROWS.items():
        if how.startswith(beginning):
            return isinstance(operation.across, across)
    if how.startswith(AIMED):
        return operation.aim is not None and operation.across is None
    return operation.across is None and operation.aim is None


def test_each_operation_has_its_row() -> None:
    by_id = {each.operation_id: each for each in OPERATIONS}
    found = rows(PAGE.read_text())
    named = [name for _, names in found for name in names]
    assert sorted(named) == sorted(by_id)
    assert [
        (how, name) for how, names in found for name in names if not is_as_said(how, by_id[name])
    ] == []


def test_a_wrong_row_is_noticed() -> None:
    by_id = {each.operation_id: each for each in OPERATIONS}
    assert not is_as_said("The asked node", by_id["get_lag"])
    assert not is_as_said("Split: each", by_id["receive_messages"])
    assert rows("## What each operation is of\n| a | b |\n| --- | --- |\n| x | `y`, `z` |") == [
        ("x", ["y", "z"])
    ]
