"""Settings that are named, merged into what is there: what is exact, what repeats, what resets."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.changes.merging import (
    DEFAULT,
    DerivedPart,
    Named,
    RetryPart,
    Settings,
    TextsPart,
    by_name,
    merged,
    without_changes,
)
from app.domain.errors import IllegalSetting
from app.domain.positions import FlushMode, ReplicationMode
from app.domain.schedules import SCHEDULE_DEFAULTS, Missed, ScheduleSettings
from app.domain.settings import (
    DEFAULT_RETRY,
    CustomizedRetry,
    DeliveryOrder,
    ExponentialRetry,
    GroupMode,
    GroupSettings,
    Permission,
    SubscriptionRule,
    TopicSettings,
    TopicType,
    TraceMode,
    WhenExhausted,
)

TOPIC_VALUES: dict[str, st.SearchStrategy[object]] = {
    "queues": st.integers(1, 9),
    "type": st.sampled_from(TopicType),
    "flush": st.sampled_from(FlushMode),
    "retention_ms": st.integers(1, 9),
    "trace": st.sampled_from(TraceMode),
    "trace_rate": st.floats(0.001, 1),
    "permission": st.sampled_from(Permission),
    "write_queues": st.none() | st.integers(1, 9),
    "max_body_bytes": st.none() | st.integers(1, 9),
    "max_rate": st.none() | st.integers(1, 9),
    "max_stored_bytes": st.none() | st.integers(1, 9),
    "replication": st.none() | st.sampled_from(ReplicationMode),
}
POLICIES = st.builds(CustomizedRetry, st.tuples(st.integers(0, 9))) | st.builds(
    ExponentialRetry, st.integers(1, 9), st.floats(1, 9), st.integers(9, 99)
)
GROUP_VALUES: dict[str, st.SearchStrategy[object]] = {
    "max_attempts": st.integers(1, 9),
    "retry_policy": POLICIES,
    "order": st.sampled_from(DeliveryOrder),
    "invisible_ms": st.integers(1, 9),
    "start": st.sampled_from(["earliest", "latest"]) | st.integers(0, 9),
    "max_in_flight": st.integers(1, 9),
    "mode": st.sampled_from(GroupMode),
    "on_exhausted": st.sampled_from(WhenExhausted),
    "max_in_flight_per_member": st.none() | st.integers(1, 9),
    "paused": st.booleans(),
    "max_in_flight_bytes": st.none() | st.integers(1, 9),
    "max_span": st.none() | st.integers(1, 9),
    "subscription": st.sampled_from(SubscriptionRule),
}
PARTS = st.builds(
    RetryPart,
    exponential=st.fixed_dictionaries(
        {"initial_ms": st.integers(1, 9), "max_ms": st.integers(9, 99)},
        optional={"multiplier": st.just(DEFAULT) | st.floats(1, 9)},
    ),
) | st.builds(RetryPart, customized=st.tuples(st.integers(0, 9)))


def patches(values: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[Named]:
    return st.fixed_dictionaries(
        {}, optional={name: value | st.just(DEFAULT) for name, value in values.items()}
    )


TOPICS = st.builds(TopicSettings, **TOPIC_VALUES)
GROUPS = st.builds(GroupSettings, **GROUP_VALUES)
GROUP_PATCHES = patches({**GROUP_VALUES, "retry_policy": POLICIES | PARTS})
TOPIC_DEFAULTS, GROUP_DEFAULTS = by_name(TopicSettings()), by_name(GroupSettings())


def test_the_values_are_those_of_all_settings() -> None:
    assert set(TOPIC_VALUES) == {each.name for each in fields(TopicSettings)}
    assert set(GROUP_VALUES) == {each.name for each in fields(GroupSettings)}


def changed_names(before: Settings, after: Settings) -> list[str]:
    """Names of the settings that differ."""
    was, now = by_name(before), by_name(after)
    return [name for name in now if was[name] != now[name]]


@given(TOPICS, patches(TOPIC_VALUES))
def test_only_what_is_named_changes(present: TopicSettings, named: Named) -> None:
    after = by_name(merged(TopicSettings, named, present, TOPIC_DEFAULTS))
    for name, value in by_name(present).items():
        wanted = named.get(name, value)
        assert after[name] == (TOPIC_DEFAULTS[name] if wanted is DEFAULT else wanted)


@given(patches(TOPIC_VALUES))
def test_what_is_made_has_defaults_where_nothing_is_named(named: Named) -> None:
    made = merged(TopicSettings, named, None, TOPIC_DEFAULTS)
    assert made == merged(TopicSettings, named, TopicSettings(), TOPIC_DEFAULTS)


@given(GROUPS, GROUP_PATCHES)
def test_merging_twice_is_merging_once(present: GroupSettings, named: Named) -> None:
    once = merged(GroupSettings, named, present, GROUP_DEFAULTS)
    assert merged(GroupSettings, named, once, GROUP_DEFAULTS) == once
    assert changed_names(once, once) == []


@given(GROUPS, GROUP_PATCHES)
def test_what_has_changed_is_exact(present: GroupSettings, named: Named) -> None:
    after = merged(GroupSettings, named, present, GROUP_DEFAULTS)
    names = changed_names(present, after)
    assert set(names) <= set(named)
    back = {name: by_name(present)[name] for name in names}
    assert merged(GroupSettings, back, after, GROUP_DEFAULTS) == present
    for name in names:
        assert by_name(present)[name] != by_name(after)[name]


@given(GROUPS)
def test_null_for_all_is_the_default(present: GroupSettings) -> None:
    named = dict.fromkeys(GROUP_VALUES, DEFAULT)
    assert merged(GroupSettings, named, present, GROUP_DEFAULTS) == GroupSettings()


@given(GROUPS)
def test_nothing_named_changes_nothing(present: GroupSettings) -> None:
    assert merged(GroupSettings, {}, present, GROUP_DEFAULTS) == present


@given(TOPICS, patches(TOPIC_VALUES))
def test_checks_see_what_a_change_brings_and_else_the_defaults(
    present: TopicSettings, named: Named
) -> None:
    after = merged(TopicSettings, named, present, TOPIC_DEFAULTS)
    checked = without_changes(after, present, TOPIC_DEFAULTS)
    changed = changed_names(present, after)
    for name, value in by_name(checked).items():
        assert value == (by_name(after)[name] if name in changed else TOPIC_DEFAULTS[name])
    assert without_changes(after, None, TOPIC_DEFAULTS) == after


CUSTOMIZED, EXPONENTIAL = CustomizedRetry((1, 2)), ExponentialRetry(5, 3.0, 50)


@pytest.mark.parametrize(
    ("present", "part", "after"),
    [
        (CUSTOMIZED, RetryPart(), CUSTOMIZED),
        (CUSTOMIZED, RetryPart(customized=(7,)), CustomizedRetry((7,))),
        (EXPONENTIAL, RetryPart(customized=(7,)), CustomizedRetry((7,))),
        (EXPONENTIAL, RetryPart(exponential={"max_ms": 9}), ExponentialRetry(5, 3.0, 9)),
        (EXPONENTIAL, RetryPart(exponential={"multiplier": DEFAULT}), ExponentialRetry(5, 2.0, 50)),
        (EXPONENTIAL, RetryPart(exponential={}), EXPONENTIAL),
        (
            CUSTOMIZED,
            RetryPart(DEFAULT, {"initial_ms": 1, "max_ms": 2}),
            ExponentialRetry(1, 2.0, 2),
        ),
        (CUSTOMIZED, RetryPart(exponential=DEFAULT), CUSTOMIZED),
        (EXPONENTIAL, RetryPart(customized=DEFAULT), EXPONENTIAL),
    ],
)
def test_parts_of_a_retry_policy(present: Any, part: RetryPart, after: object) -> None:
    assert part.merged(present) == after


@pytest.mark.parametrize(
    ("present", "part", "pointer"),
    [
        (CUSTOMIZED, RetryPart(customized=DEFAULT), "/retry_policy"),
        (EXPONENTIAL, RetryPart(exponential=DEFAULT), "/retry_policy"),
        (CUSTOMIZED, RetryPart(exponential={}), "/retry_policy/exponential/initial_ms"),
        (
            CUSTOMIZED,
            RetryPart(exponential={"initial_ms": 1}),
            "/retry_policy/exponential/max_ms",
        ),
        (
            EXPONENTIAL,
            RetryPart(exponential={"initial_ms": DEFAULT}),
            "/retry_policy/exponential/initial_ms",
        ),
    ],
)
def test_parts_that_leave_no_whole_policy(present: Any, part: RetryPart, pointer: str) -> None:
    with pytest.raises(IllegalSetting) as caught:
        part.merged(present)
    assert caught.value.pointer == pointer


def test_texts_are_added_changed_and_taken_out() -> None:
    part = TextsPart({"a": "1", "b": DEFAULT, "c": DEFAULT})
    assert part.merged({"a": "0", "b": "2", "d": "3"}) == {"a": "1", "d": "3"}
    assert part.merged(None) == {"a": "1"}


def test_a_value_that_follows_leaves_one_that_was_chosen() -> None:
    part = DerivedPart("text/plain", frozenset({None, "application/json"}))
    assert part.merged("application/json") == "text/plain"
    assert part.merged(None) == "text/plain"
    assert part.merged("application/xml") == "application/xml"


def test_a_schedule_needs_what_has_no_default() -> None:
    whole: Named = {"cron": "* * * * *", "topic": "orders", "body": b"x"}
    made = merged(ScheduleSettings, whole, None, SCHEDULE_DEFAULTS)
    assert made == ScheduleSettings("* * * * *", "orders", b"x")
    changed = merged(ScheduleSettings, {"missed": Missed.SKIP}, made, SCHEDULE_DEFAULTS)
    assert (changed.missed, changed.cron) == (Missed.SKIP, made.cron)
    for name in whole:
        rest = {other: value for other, value in whole.items() if other != name}
        with pytest.raises(IllegalSetting, match=f"{name} is missing") as caught:
            merged(ScheduleSettings, rest, None, SCHEDULE_DEFAULTS)
        assert caught.value.pointer == f"/{name}"
        with pytest.raises(IllegalSetting, match=f"{name} has no default"):
            merged(ScheduleSettings, {name: DEFAULT}, made, SCHEDULE_DEFAULTS)


def test_the_policy_of_a_new_group_is_rocketmqs() -> None:
    named: Named = {"retry_policy": DEFAULT}
    present = GroupSettings(retry_policy=EXPONENTIAL)
    assert merged(GroupSettings, named, present, GROUP_DEFAULTS).retry_policy == DEFAULT_RETRY
