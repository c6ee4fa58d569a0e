"""The configuration: by environment and file, and what is wrong with it is said."""

from pathlib import Path

import pytest

from app.config import ConfigError, load_config
from app.domain.limits import Limits


def test_limits_come_from_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "curlew.toml"
    file.write_text("port = 0\n[limits]\nwait_seconds_max = 5\nidempotency_window_ms = 9\n")
    environment = {"CURLEW_LIMIT_IDEMPOTENCY_WINDOW_MS": "7", "CURLEW_LIMIT_PAGE_SIZE_MAX": "8"}
    config = load_config(environment, {}, file)
    assert config.limits == Limits(wait_seconds_max=5, idempotency_window_ms=9, page_size_max=8)
    assert load_config({}, {}).limits == Limits()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("LIMIT_WAIT_SECONDS_MAXX", "5", "did you mean 'limit_wait_seconds_max'"),
        ("LIMIT_WAIT_SECONDS_MAX", "0", "whole number from 1"),
        ("LIMIT_WAIT_SECONDS_MAX", "long", "whole number from 1"),
        ("LIMIT_BODY_BYTES_MAX", str(2**40), "contradicts other limits"),
        ("LOG_CACHE_MIB", "63", "whole number from 64 to 1073741824, or 0"),
        ("LOG_CACHE_MIB", "all", "whole number from 64 to 1073741824, or 0"),
    ],
)
def test_what_cannot_be_is_said(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config({f"CURLEW_{name}": text}, {})


@pytest.mark.parametrize(("text", "mib"), [("0", 0), ("64", 64), ("1073741824", 2**30)])
def test_how_much_of_the_log_stays_in_memory(text: str, mib: int) -> None:
    assert load_config({"CURLEW_LOG_CACHE_MIB": text}, {}).log_cache_mib == mib
    assert load_config({}, {}).log_cache_mib is None


def test_limits_in_the_file_are_a_table(tmp_path: Path) -> None:
    file = tmp_path / "curlew.toml"
    file.write_text("limits = 3\n")
    with pytest.raises(ConfigError, match=r"write \[limits\]"):
        load_config({}, {}, file)
