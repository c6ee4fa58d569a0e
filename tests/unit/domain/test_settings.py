"""Settings of topics and groups: the defaults pass, each rule refuses, and says where."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import IllegalSetting
from app.domain.limits import Limits
from app.domain.settings import (
    DEFAULT_RETRY,
    CustomizedRetry,
    ExponentialRetry,
    GroupSettings,
    TopicSettings,
    check_group_settings,
    check_topic_settings,
    default_group_settings,
    default_topic_settings,
)

LIMITS = Limits()
DAY_MS = 86_400_000


def test_defaults_are_allowed() -> None:
    check_topic_settings(TopicSettings(), LIMITS)
    check_group_settings(GroupSettings(), LIMITS)
    assert default_topic_settings(LIMITS) == TopicSettings()
    assert default_group_settings(LIMITS) == GroupSettings()


def test_default_retry_delays_are_rocketmqs_from_ten_seconds_to_two_hours() -> None:
    delays_s = [delay_ms / 1_000 for delay_ms in DEFAULT_RETRY.delays_ms]
    assert delays_s == [10, 30, *(60 * m for m in [*range(1, 11), 20, 30]), 3_600, 7_200]


def test_defaults_obey_tighter_limits() -> None:
    tight = Limits(
        queues_per_topic_max=2,
        group_in_flight_max=5,
        attempts_max=3,
        invisible_ms_max=20_000,
        retry_delays_max=2,
        delay_ms_max=5_000,
    )
    check_topic_settings(default_topic_settings(tight), tight)
    check_group_settings(default_group_settings(tight), tight)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"queues": 0}, "/queues"),
        ({"queues": LIMITS.queues_per_topic_max + 1}, "/queues"),
        ({"retention_ms": LIMITS.retention_ms_min - 1}, "/retention_ms"),
        ({"retention_ms": LIMITS.retention_ms_max + 1}, "/retention_ms"),
        ({"type": "queue"}, "/type"),
        ({"flush": "never"}, "/flush"),
    ],
)
def test_illegal_topic_settings(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(IllegalSetting) as caught:
        check_topic_settings(replace(TopicSettings(), **change), LIMITS)
    assert caught.value.pointer == pointer
    assert caught.value.code == "ILLEGAL_SETTING"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"max_attempts": 0}, "/max_attempts"),
        ({"max_attempts": LIMITS.attempts_max + 1}, "/max_attempts"),
        ({"invisible_ms": 999}, "/invisible_ms"),
        ({"invisible_ms": 12 * 3_600_000 + 1}, "/invisible_ms"),
        ({"max_in_flight": 0}, "/max_in_flight"),
        ({"max_in_flight": LIMITS.group_in_flight_max + 1}, "/max_in_flight"),
        ({"order": "random"}, "/order"),
        ({"start": "middle"}, "/start"),
        ({"start": -1}, "/start"),
        ({"start": 2**63}, "/start"),
        ({"retry_policy": CustomizedRetry(())}, "/retry_policy/customized"),
        ({"retry_policy": CustomizedRetry((1,) * 65)}, "/retry_policy/customized"),
        ({"retry_policy": CustomizedRetry((1, -1))}, "/retry_policy/customized/1"),
        ({"retry_policy": CustomizedRetry((41 * DAY_MS,))}, "/retry_policy/customized/0"),
        ({"retry_policy": ExponentialRetry(0, 2, 10)}, "/retry_policy/exponential/initial_ms"),
        ({"retry_policy": ExponentialRetry(20, 2, 10)}, "/retry_policy/exponential/max_ms"),
        ({"retry_policy": ExponentialRetry(1, 2, 41 * DAY_MS)}, "/retry_policy/exponential/max_ms"),
        ({"retry_policy": ExponentialRetry(1, 0.5, 9)}, "/retry_policy/exponential/multiplier"),
        (
            {"retry_policy": ExponentialRetry(1, float("nan"), 9)},
            "/retry_policy/exponential/multiplier",
        ),
    ],
)
def test_illegal_group_settings(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(IllegalSetting) as caught:
        check_group_settings(replace(GroupSettings(), **change), LIMITS)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "change",
    [
        {"start": "latest"},
        {"start": 0},
        {"start": 1_700_000_000_000},
        {"retry_policy": ExponentialRetry(5_000, 2.0, 7_200_000)},
        {"retry_policy": CustomizedRetry((0, 40 * DAY_MS))},
        {"order": "fifo"},
    ],
)
def test_legal_group_settings(change: dict[str, Any]) -> None:
    check_group_settings(replace(GroupSettings(), **change), LIMITS)
