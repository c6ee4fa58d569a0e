"""What a node says of its settings: each value, and where it comes from."""

from dataclasses import replace
from pathlib import Path

from app.config import NAMES, load_config
from app.domain.limits import Limits
from app.main import settings_in_use


def test_each_value_has_its_source_and_the_last_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "curlew.toml"
    file.write_text('trace_hours = 5\nlog_level = "debug"\n[limits]\ntopics_max = 7\n')
    environment = {"CURLEW_TRACE_HOURS": "4", "CURLEW_TRUSTED_PROXIES": "10.0.0.1"}
    config = load_config(environment, {"log_level": "error"}, file)
    found = {each.name: each for each in settings_in_use(config, config.limits)}
    assert found["trace_hours"][1:] == (5, 72, "file")
    assert found["log_level"][1:] == ("error", "info", "flag")
    assert found["trusted_proxies"][1:] == (["10.0.0.1"], [], "environment")
    assert found["limit_topics_max"][1:] == (7, 10_000, "file")
    assert found["port"][1:] == (8710, 8710, "default")
    assert set(NAMES) <= found.keys()
    assert list(found) == sorted(found)


def test_a_password_is_not_shown() -> None:
    url = "postgresql://user:geheim@db:5432/curlew"
    config = load_config({}, {"database_url": url})
    found = {each.name: each.value for each in settings_in_use(config, config.limits)}
    assert "geheim" not in str(found)
    assert "db" in str(found["database_url"])


def test_a_bound_that_the_machine_lowered_is_shown_as_it_is() -> None:
    limits = replace(Limits(), connections_max=12)
    found = {each.name: each for each in settings_in_use(load_config({}, {}), limits)}
    assert found["limit_connections_max"][1:3] == (12, Limits().connections_max)
