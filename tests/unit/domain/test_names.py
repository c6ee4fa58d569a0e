"""Names that clients may use, and those that the broker makes."""

import pytest

from app.domain.errors import IllegalGroup, IllegalTopic, InvalidRequest, TopicNotFound
from app.domain.names import (
    DECISION_TOPIC,
    EPOCHS_TOPIC,
    HALF_TOPIC,
    PRODUCER_TOPIC,
    PROGRESS_TOPIC,
    TERMS_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    check_group,
    check_namespace,
    check_new_topic,
    check_topic,
    dead_letter_topic,
    did_you_mean,
    is_in,
    is_system_topic,
    namespace_of,
    nearest,
    retry_topic,
    split_name,
    stored_name,
    suggest_similar,
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
        EPOCHS_TOPIC,
        PRODUCER_TOPIC,
        TRACE_TOPIC,
        TERMS_TOPIC,
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


@pytest.mark.parametrize(("name", "other"), [("retry", "order"), ("resource", "producer")])
def test_what_only_shares_letters_is_not_near(name: str, other: str) -> None:
    assert nearest(name, [other]) is None


def test_the_nearest_of_long_names_is_not_the_first_one() -> None:
    names = ["a-name-of-many-words-" * 5 + f"{number:05}" for number in range(120)]
    assert nearest(names[77].replace("many", "mnay", 1), names) == names[77]
    assert nearest("orders", ["o" * 127, "orders-"]) == "orders-"


def test_a_stored_name_is_a_namespace_and_a_name() -> None:
    assert stored_name("eu", "orders") == "eu%orders"
    assert stored_name("", "orders") == "orders"
    assert split_name("eu%orders") == ("eu", "orders")
    assert split_name("orders") == ("", "orders")
    assert split_name(dead_letter_topic("eu%billing")) == ("eu", "%DLQ%billing")
    assert namespace_of(retry_topic("eu%billing", "eu%orders")) == "eu"
    assert is_in("", "orders")
    assert not is_in("", "eu%orders")


def test_namespace_and_name_have_a_bound_together() -> None:
    assert check_topic("eu%" + "t" * 124)
    with pytest.raises(IllegalTopic, match="too long") as refused:
        check_topic("eu%" + "t" * 125)
    assert refused.value.hint == "both together have at most 126 characters"
    with pytest.raises(IllegalGroup, match="not allowed"):
        check_group("eu%us%billing")
    with pytest.raises(IllegalTopic, match="reserved"):
        check_topic("eu%rmq_sys_progress")


@pytest.mark.parametrize("name", ["", "a.b", "a%b", "n" * 64, "rmq_sys_x"])
def test_names_that_no_namespace_has(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_namespace(name)


def test_nobody_is_told_of_names_in_another_namespace() -> None:
    known = ["eu%orders", "orders", "us%orders"]
    assert nearest("ordres", known) == "orders"
    assert nearest("eu%ordres", known) == "eu%orders"
    assert nearest("eu%ordres", ["orders", "us%orders"]) is None
    assert nearest("ordres", ["eu%orders"]) is None


@pytest.mark.parametrize(
    "name",
    [
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "OFFSET_MOVED_EVENT"),
        *("RMQ_SYS_TRACE_TOPIC", "Rmq_Sys_x", "team-a%TBW102"),
    ],
)
def test_names_of_rocketmqs_own_topics_are_not_for_new_ones(name: str) -> None:
    with pytest.raises(IllegalTopic, match="reserved"):
        check_new_topic(name)
    check_topic(name)  # one that is there from before may be changed and deleted


@pytest.mark.parametrize("name", ["orders", "TBW1020", "my_RMQ_SYS_x", "tbw102"])
def test_other_names_are(name: str) -> None:
    assert check_new_topic(name) == name


def test_a_hint_is_found_among_many_names_that_begin_alike() -> None:
    known = [f"topic-{number}" for number in range(1_000)]
    error = suggest_similar(TopicNotFound("none"), "topic", "topic-777x", known, did_you_mean)
    assert error.suggest is not None
    assert error.suggest(lambda *_: True) == "did you mean 'topic-777'?"
    assert error.suggest(lambda *_: False) is None
