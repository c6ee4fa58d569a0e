"""Bounds to offsets: names, numbers, times and commits, without a service."""

from collections.abc import Mapping

import pytest
from pyspark_curlew.errors import OptionInvalid
from pyspark_curlew.reading.offsets import TopicQueue
from pyspark_curlew.reading.positions_found import Lookups, resolve
from pyspark_curlew.reading.positions_wanted import Bound


def queues(*offsets: int) -> dict[TopicQueue, int]:
    return {TopicQueue("orders", number): offset for number, offset in enumerate(offsets)}


def lookups(
    times: Mapping[int, int] | None = None, committed: Mapping[int, int] | None = None
) -> Lookups:
    return Lookups(
        earliest=queues(10, 20),
        latest=queues(15, 28),
        at_time=lambda _topic, _moment: times or {},
        committed=lambda _topic: committed or {},
    )


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (Bound("earliest"), queues(10, 20)),
        (Bound("latest"), queues(15, 28)),
        (Bound("earliest", {"orders": {0: 12}}), queues(12, 20)),
        (Bound("earliest", {"orders": {0: -1, 1: -2}}), queues(15, 20)),
        (Bound("earliest", {"orders": {1: 28}}), queues(10, 28)),
        (Bound("earliest", {"orders": {0: 3}}), queues(3, 20)),  # expired: the plan reports it
        (Bound("latest", timestamp_ms=7), queues(11, 22)),
        (Bound("latest", {"orders": {0: 14}}, timestamp_ms=7), queues(11, 22)),
        (Bound("latest", timestamps={"orders": {1: 7}}), queues(15, 22)),
        (Bound("latest", {"orders": {1: 24}}, timestamps={"orders": {1: 7}}), queues(15, 22)),
        (Bound("committed"), queues(12, 20)),
        (Bound("committed", fallback="latest"), queues(12, 28)),
    ],
)
def test_a_bound_is_resolved(bound: Bound, expected: dict[TopicQueue, int]) -> None:
    found = lookups(times={0: 11, 1: 22}, committed={0: 12})
    assert resolve(bound, found, "startingOffsets") == expected


def test_no_message_as_new_as_the_time() -> None:
    found = lookups(times={0: 11, 1: 28})
    assert resolve(Bound("latest", timestamp_ms=7), found, "startingOffsets") == queues(11, 28)
    with pytest.raises(
        OptionInvalid, match="no message in queue 1 of topic 'orders' is as new as 7"
    ):
        resolve(Bound("latest", timestamp_ms=7, too_new="error"), found, "startingOffsets")


def test_a_message_that_came_between_the_questions_is_not_stepped_over() -> None:
    found = lookups(times={0: 17, 1: 22})
    assert resolve(Bound("latest", timestamp_ms=7), found, "startingOffsets") == queues(15, 22)


def test_nothing_committed_can_be_an_error() -> None:
    with pytest.raises(OptionInvalid, match="committed nothing in queue 1"):
        resolve(Bound("committed", fallback="error"), lookups(committed={0: 12}), "startingOffsets")


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound("earliest", {"orders": {2: 0}}), "names queue 2 of topic 'orders', which has 2"),
        (Bound("earliest", {"other": {0: 0}}), "names topic 'other', which is not read"),
        (Bound("latest", timestamps={"orders": {5: 0}}), "names queue 5"),
        (
            Bound("earliest", {"orders": {0: 16}}),
            "puts queue 0 of topic 'orders' at 16, beyond its",
        ),
    ],
)
def test_a_bound_that_cannot_be_is_refused(bound: Bound, words: str) -> None:
    with pytest.raises(OptionInvalid, match=words):
        resolve(bound, lookups(), "startingOffsets")
