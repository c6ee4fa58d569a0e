"""How policies are written, and what is no policy."""

import pytest

from app.domain.access.actions import CLUSTER, Action, Kind, Target
from app.domain.access.policies import Matching, Pattern, read_actions, read_pattern
from app.domain.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("topic:orders", Pattern(Kind.TOPIC, Matching.LITERAL, "orders")),
        ("topic:orders-*", Pattern(Kind.TOPIC, Matching.PREFIX, "orders-")),
        ("group:*", Pattern(Kind.GROUP, Matching.ANY)),
        ("producer:job:7", Pattern(Kind.PRODUCER, Matching.LITERAL, "job:7")),
        ("cluster", Pattern(Kind.CLUSTER, Matching.ANY)),
    ],
)
def test_a_pattern_is_read_and_written(text: str, pattern: Pattern) -> None:
    assert read_pattern(text) == pattern
    assert str(pattern) == text


@pytest.mark.parametrize(
    "text",
    ["", "orders", "topic", "topic:", "topic:**", "topic:a*b", "topics:a", "cluster:x", "topic:é"],
)
def test_what_is_no_pattern_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_pattern(text)
    assert "topic:orders-*" in str(caught.value.hint)


def test_actions_are_read_by_name() -> None:
    assert read_actions(["PUB", "GET"]) == {Action.PUB, Action.GET}
    for wrong in (["pub"], [], ["PUB", "ALL"]):
        with pytest.raises(InvalidRequest) as caught:
            read_actions(wrong)
        assert "PUB, SUB" in str(caught.value.hint)


def test_a_target_is_shown_as_a_pattern_is_written() -> None:
    assert str(Target(Kind.TOPIC, "orders")) == "topic:orders"
    assert str(CLUSTER) == "cluster"
