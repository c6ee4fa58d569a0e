"""The page of settings says what the program does: names, ranges, defaults."""

import re
from dataclasses import fields

import pytest

from app.commands.settings_page import amount, settings_page
from app.config import NAMES, SETTINGS, load_config
from app.domain.limits import FIXED_LIMITS, Limits

RANGED = {
    name: found
    for name, setting in SETTINGS.items()
    if (found := re.search(r"(\d+) to (\d+)$", setting.kind.values))
}


def test_every_setting_and_limit_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", settings_page(), re.MULTILINE)
    assert rows == [*NAMES, *(each.name for each in fields(Limits)), *FIXED_LIMITS]


def test_the_ranges_are_those_of_the_program() -> None:
    others = {"port", "flush_interval_ms", "trace_hours", "audit_days", "policy_age_max"}
    others.add("oidc_lifetime_max")
    others |= {name for name in SETTINGS if name.startswith("quota_")}
    assert set(RANGED) == {"segment_mib", "log_cache_mib", "replicas", *others}
    for name, found in RANGED.items():
        if name == "replicas":
            continue  # needs others, see test_config
        low, high = int(found[1]), int(found[2])
        for value in (low, high):
            assert getattr(load_config({}, {name: str(value)}), name) == value
        for value in (low - 1, high + 1):
            if value:
                with pytest.raises(Exception, match=f"{name} = '{value}': use a whole number"):
                    load_config({}, {name: str(value)})


def test_the_choices_are_those_of_the_program() -> None:
    for name in ("flush", "log_level", "access_log", "auto_create_groups"):
        for value in SETTINGS[name].kind.values.split(", "):
            load_config({}, {name: value})
        with pytest.raises(Exception, match=f"{name} = 'other': use"):
            load_config({}, {name: "other"})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("body_bytes_max", 4 << 20, "4194304 (4 MiB)"),
        ("tag_bytes_max", 128, "128"),
        ("member_lease_ms", 30_000, "30000 (30 s)"),
        ("wait_seconds_max", 60, "60"),
        ("linger_ms_max", 1_500, "1500"),
    ],
)
def test_amounts(name: str, value: int, text: str) -> None:
    assert amount(name, value) == text
