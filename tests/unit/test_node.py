"""What a node asks of its store on this and that machine."""

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.config import Config, ConfigError
from app.domain.limits import MIB
from app.node import Node
from app.node_parts import from_config

GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("setting", "gives_back", "memory", "kept"),
    [
        (None, False, 24 * GIB, None),
        (None, True, 24 * GIB, 1536 * MIB),
        (None, True, 256 * MIB, 64 * MIB),
        (0, True, 24 * GIB, None),
        (100, True, 24 * GIB, 100 * MIB),
        (100, False, 24 * GIB, 100 * MIB),
    ],
)
def test_the_log_fills_a_part_of_the_memory_where_new_memory_is_dear(
    setting: int | None,
    gives_back: bool,
    memory: int,
    kept: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(from_config, "gives_free_memory_back", lambda: gives_back)
    monkeypatch.setattr(from_config, "memory_bytes", lambda: memory)
    config = Config(log_cache_mib=setting)
    assert from_config.log_cache_bytes(config) == kept
    note = from_config.log_cache_note(config)
    assert (note is not None) is (setting is None and kept is not None)
    assert note is None or f"the newest {(kept or 0) // MIB} MiB" in note


def test_spans_without_their_extra_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "app.runtime.span_export", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'curlew\[otel\]'"):
        from_config.spans_of(Config(otel_traces=True), "4f2a91c7")
    assert from_config.spans_of(Config(), "4f2a91c7") is None


def node_of(told: list[str], drain: BaseException | None = None) -> Any:
    """A node of replicas in a term, with parts that only tell what they are asked."""

    def tells(name: str, error: BaseException | None = None) -> Any:
        async def called(*_: object) -> None:
            told.append(name)
            if error is not None:
                raise error

        return called

    term = SimpleNamespace(
        drain=tells("drain", drain), close=tells("close"), follow_changes=tells("term follows")
    )
    node = cast("Any", object.__new__(Node))
    node.term = term
    node.running = SimpleNamespace(look=lambda: None)
    node._app = SimpleNamespace(follow=lambda: None, end_term=tells("requests end"))
    node._shard = SimpleNamespace(follow=tells("shard follows"), following=object())
    return node


@pytest.mark.anyio
async def test_a_term_ends_whatever_its_drain_has_met() -> None:
    """Its store is opened anew behind it, so nobody may use it any more."""
    told: list[str] = []
    node = node_of(told, OSError("no descriptor"))
    with pytest.raises(OSError, match="no descriptor"):
        await node.end_term()
    assert told == ["drain", "requests end", "close"]


@pytest.mark.anyio
async def test_new_members_are_heard_of_before_what_waits_for_them() -> None:
    told: list[str] = []
    await node_of(told)._follow_changes()
    assert told == ["shard follows", "term follows"]
