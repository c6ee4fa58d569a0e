"""Names that clients may use, and those that the broker makes."""

import pytest

from app.domain.errors import IllegalTopic
from app.domain.names import (
    DECISION_TOPIC,
    HALF_TOPIC,
    PRODUCER_TOPIC,
    PROGRESS_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    check_topic,
    dead_letter_topic,
    is_system_topic,
    nearest,
    retry_topic,
)


def test_the_retry_topic_names_group_and_topic() -> None:
    assert retry_topic("billing", "orders") == "%RETRY%billing+orders"
    longest = {retry_topic("g" * 127, "t" * 126 + end) for end in "ab"}
    assert {len(name) for name in longest} == {255}
    assert dead_letter_topic("billing") == "%DLQ%billing"


def test_system_topics_are_closed_to_clients() -> None:
    for name in (
        PROGRESS_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        DECISION_TOPIC,
        PRODUCER_TOPIC,
        TRACE_TOPIC,
    ):
        assert is_system_topic(name)
        with pytest.raises(IllegalTopic, match="reserved"):
            check_topic(name)
    assert not is_system_topic("orders")


@pytest.mark.parametrize("count", [100, 10_000])
def test_the_nearest_of_few_and_of_many_names(count: int) -> None:
    names = [f"orders-{number:05}" for number in range(count)]
    for typo in ("ordres-00077", "orders-x00077", "rders-00077", "orders_00077", "orders-00077x"):
        assert nearest(typo, iter(names)) == "orders-00077"
    assert nearest("payments", names) is None
    assert nearest("", names) is None


def test_the_nearest_of_long_names_is_not_the_first_one() -> None:
    names = ["a-name-of-many-words-" * 5 + f"{number:05}" for number in range(120)]
    assert nearest(names[77].replace("many", "mnay", 1), names) == names[77]
    assert nearest("orders", ["o" * 127, "orders-"]) == "orders-"
