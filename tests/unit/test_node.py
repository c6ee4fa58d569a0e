"""What a node asks of its store on this and that machine."""

import sys

import pytest

from app.config import Config, ConfigError
from app.domain.limits import MIB
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
