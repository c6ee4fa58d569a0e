"""Settings of a node: each value and where it comes from, and those that change while it runs."""

import ast
import logging
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from app.cluster.metadata.snapshot import NO_SETTINGS, ClusterSnapshot, StoredSettings
from app.config import NAMES, Config, load_config
from app.domain.changes.conditions import Changed, Conditions, Terms
from app.domain.errors import IllegalSetting, PreconditionFailed, SettingFixed
from app.domain.limits import CHANGEABLE_LIMITS, Limits
from app.running_config import CHANGEABLE, RunningConfig

pytestmark = pytest.mark.anyio

APP = Path(__file__).parents[2] / "app"


class Keeper:
    """Stored settings in memory."""

    def __init__(self, **stored: str) -> None:
        self.snapshot = ClusterSnapshot()
        if stored:
            self.keep(stored)

    def keep(self, values: Mapping[str, str]) -> None:
        """As another node would change them."""
        version = self.snapshot.settings.version + 1
        settings = StoredSettings(MappingProxyType(dict(values)), version)
        self.snapshot = self.snapshot.with_settings(settings, version)

    async def change_settings(
        self, named: Mapping[str, str | None], terms: Terms | None = None
    ) -> Changed[StoredSettings]:
        terms = terms or Terms()
        before = self.snapshot.settings
        terms.conditions.check("the configuration", before.version)
        if not terms.is_dry_run:
            merged = {**before.values, **named}
            self.keep({name: text for name, text in merged.items() if text is not None})
        return Changed(before, self.snapshot.settings)


def running(config: Config | None = None, **stored: str) -> tuple[RunningConfig, Keeper, Limits]:
    keeper, limits = Keeper(**stored), replace((config or Config()).limits)
    return RunningConfig(config or Config(), limits, keeper), keeper, limits


def test_each_value_has_its_source_and_the_last_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "curlew.toml"
    file.write_text('trace_hours = 5\nlog_level = "debug"\n[limits]\ntopics_max = 7\n')
    environment = {"CURLEW_TRACE_HOURS": "4", "CURLEW_TRUSTED_PROXIES": "10.0.0.1"}
    config = load_config(environment, {"log_level": "error"}, file)
    settings = running(config)[0].settings()
    found = {each.name: each for each in settings}
    assert found["trace_hours"][1:] == (5, 72, "file", True)
    assert found["log_level"][1:] == ("error", "info", "flag", True)
    assert found["trusted_proxies"][1:] == (["10.0.0.1"], [], "environment", False)
    assert found["limit_topics_max"][1:] == (7, 10_000, "file", True)
    assert found["port"][1:] == (8710, 8710, "default", False)
    assert set(NAMES) <= found.keys()
    assert list(found) == sorted(found)


def test_a_password_is_not_shown() -> None:
    url = "postgresql://user:geheim@db:5432/curlew"
    config = load_config({"CURLEW_DATABASE_URL": url}, {})
    found = {each.name: each.value for each in running(config)[0].settings()}
    assert "geheim" not in str(found)
    assert "db" in str(found["database_url"])


def test_a_bound_that_the_machine_lowered_is_shown_as_it_is() -> None:
    limits = replace(Limits(), connections_max=12)
    settings = RunningConfig(load_config({}, {}), limits, Keeper()).settings()
    found = {each.name: each for each in settings}
    assert found["limit_connections_max"][1:3] == (12, Limits().connections_max)


async def test_a_change_is_applied_and_told() -> None:
    config, _, limits = running()
    heard: list[str] = []
    config.listen(lambda now: heard.append(now.log_level))
    named = {"log_level": "debug", "limit_topics_max": 3, "access_log": True}
    patch = await config.change(named, Terms())
    assert patch.changed == {
        "log_level": ("info", "debug"),
        "limit_topics_max": (10_000, 3),
        "access_log": (False, True),
    }
    assert (config.config.log_level, limits.topics_max, heard) == ("debug", 3, ["info", "debug"])
    found = {each.name: each for each in config.settings()}
    assert found["limit_topics_max"][1:] == (3, 10_000, "stored", True)
    await config.change({"log_level": None, "limit_topics_max": None}, Terms())
    assert (config.config.log_level, limits.topics_max) == ("info", 10_000)


async def test_another_nodes_change_is_followed() -> None:
    config, keeper, limits = running()
    keeper.keep({"limit_groups_max": "5"})
    assert limits.groups_max == 10_000
    config.look()
    assert limits.groups_max == 5


async def test_a_dry_run_and_a_wrong_version_change_nothing() -> None:
    config, _, limits = running()
    tried = await config.change({"limit_topics_max": 3}, Terms(is_dry_run=True))
    assert tried.changed == {"limit_topics_max": (10_000, 3)}
    with pytest.raises(PreconditionFailed):
        await config.change({"limit_topics_max": 3}, Terms(Conditions.at(9)))
    assert (limits.topics_max, config.version) == (10_000, NO_SETTINGS.version)
    await config.change({"limit_topics_max": 3}, Terms(Conditions.at(config.version)))
    assert limits.topics_max == 3


async def test_the_nodes_own_sources_outweigh_what_is_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = load_config({"CURLEW_LOG_LEVEL": "error"}, {})
    with caplog.at_level(logging.WARNING):
        config, keeper, _ = running(given, log_level="debug", trace_hours="5")
    [line] = [each.getMessage() for each in caplog.records]
    assert line == "the stored setting log_level = debug is overruled by the environment: error"
    assert (config.config.log_level, config.config.trace_hours) == ("error", 5)
    patch = await config.change({"log_level": "warning"}, Terms())
    assert (patch.changed, patch.overruled) == ({}, ["log_level"])
    assert keeper.snapshot.settings.values["log_level"] == "warning"


def test_what_another_version_stored_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    stored = {"segment_mib": "8", "log_level": "loud", "limit_retention_ms_min": str(2**60)}
    config, _, limits = running(None, **stored)
    assert (config.config.segment_mib, config.config.log_level) == (256, "info")
    assert limits == Limits()
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("named", "pointer", "text"),
    [
        ({"log_levle": "debug"}, "/log_levle", "no setting"),
        ({"log_level": "loud"}, "/log_level", "use one of"),
        ({"log_level": True}, "/log_level", "must be text"),
        ({"trace_hours": "5"}, "/trace_hours", "a whole number"),
        ({"access_log": 1}, "/access_log", "true or false"),
        ({"limit_topics_max": 0}, "/limit_topics_max", "from 1"),
        ({"limit_retention_ms_min": 2**60}, "/limit_retention_ms_min", "contradict"),
    ],
)
async def test_bad_values_are_refused(named: dict[str, object], pointer: str, text: str) -> None:
    config, keeper, _ = running()
    with pytest.raises(IllegalSetting, match=text) as refused:
        await config.change({"access_log": True, **named}, Terms())
    assert refused.value.pointer == pointer
    assert keeper.snapshot.settings == NO_SETTINGS


async def test_what_is_read_at_the_start_is_fixed() -> None:
    config, _, _ = running()
    for name in ("segment_mib", "data_dir", "limit_body_bytes_max"):
        with pytest.raises(SettingFixed):
            await config.change({name: 5}, Terms())


def uses_of_limits() -> Iterator[tuple[str, str | None, str]]:
    """Each reading of a bound: its name, the function around it, and the module."""
    names = {each.name for each in fields(Limits)}

    def walk(
        node: ast.AST, function: str | None, module: str
    ) -> Iterator[tuple[str, str | None, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in names:
                yield name, function, module
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, module)

    for path in sorted(APP.rglob("*.py")):
        yield from walk(ast.parse(path.read_text()), None, str(path.relative_to(APP)))


AT_THE_START = {None, "__init__", "__post_init__", "open", "start", "of", "guarded", "build_api"}
"""Functions that run once, and module level: what they read is kept."""


def test_no_code_keeps_a_bound_that_may_change() -> None:
    found = list(uses_of_limits())
    kept = [each for each in found if each[0] in CHANGEABLE_LIMITS and each[1] in AT_THE_START]
    assert kept == [], "read it where it is used, or take it out of CHANGEABLE_LIMITS"
    assert {each[0] for each in found} >= CHANGEABLE_LIMITS
    assert {each.name for each in fields(Limits)} >= CHANGEABLE_LIMITS
    assert {"log_level", "limit_topics_max"} <= CHANGEABLE
