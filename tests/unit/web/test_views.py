"""What the topics page shows, without HTTP."""

import pytest

from app.domain.positions import TimestampMs
from app.web.views import (
    BAR_HEIGHT,
    QUEUES_SHOWN_MAX,
    TOPICS_PER_PAGE,
    QueueRow,
    TopicRow,
    duration_text,
    moment_text,
    number_text,
    topics_page,
)
from tests.support.clients.web_fakes import FakeNode


def row(*depths: int) -> TopicRow:
    queues = [QueueRow(queue, 10, 10 + depth) for queue, depth in enumerate(depths)]
    return TopicRow("t", "normal", "sync", "1 h", len(queues), sum(depths), queues)


def test_depth_is_the_readable_part_of_all_queues() -> None:
    node = FakeNode().add("orders", {0: (100, 150), 1: (0, 7), 2: (9, 9)})
    (topic,) = topics_page(node, node, prefix="", after="").rows
    assert topic.depth == 57
    assert [queue.depth for queue in topic.queues] == [50, 7, 0]


def test_pages_follow_each_other_without_gap_or_repeat() -> None:
    node = FakeNode()
    names = [f"topic-{number:03}" for number in range(2 * TOPICS_PER_PAGE + 1)]
    for name in reversed(names):
        node.add(name, 1)
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = topics_page(node, node, prefix="", after=after)
        seen += [topic.name for topic in page.rows]
        after = page.next_after
    assert seen == names


def test_a_last_page_that_is_full_has_no_successor() -> None:
    node = FakeNode()
    for number in range(TOPICS_PER_PAGE):
        node.add(f"topic-{number:03}", 1)
    assert topics_page(node, node, prefix="", after="").next_after is None


def test_only_the_topics_shown_are_asked_for_their_queues() -> None:
    node = FakeNode()
    for number in range(3 * TOPICS_PER_PAGE):
        node.add(f"topic-{number:03}", 1)
    page = topics_page(node, node, prefix="topic-1", after="")
    assert node.asked == [topic.name for topic in page.rows]
    assert (page.matching, page.total) == (50, 150)


def test_many_queues_are_counted_but_not_all_shown() -> None:
    node = FakeNode().add("wide", dict.fromkeys(range(1024), (0, 1)))
    (topic,) = topics_page(node, node, prefix="", after="").rows
    assert (topic.queue_count, topic.depth) == (1_024, 1_024)
    assert len(topic.queues) == QUEUES_SHOWN_MAX


def test_bars_compare_the_queues() -> None:
    assert row(100, 50, 0).bars == [BAR_HEIGHT, BAR_HEIGHT // 2, 0]


def test_a_bar_above_zero_is_always_seen() -> None:
    assert row(1_000_000, 1).bars == [BAR_HEIGHT, 1]


@pytest.mark.parametrize("depths", [(), (0, 0)])
def test_bars_of_nothing_are_flat(depths: tuple[int, ...]) -> None:
    assert row(*depths).bars == [0] * len(depths)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (72 * 3_600_000, "3 d"),
        (25 * 3_600_000, "25 h"),
        (5_400_000, "90 min"),
        (1_000, "1 s"),
        (1_500, "1500 ms"),
        (0, "0 ms"),
    ],
)
def test_durations(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_large_numbers_are_exact() -> None:
    assert number_text(9_007_199_254_740_993) == "9,007,199,254,740,993"


def test_moments_are_utc() -> None:
    assert moment_text(TimestampMs(1_795_252_476_950)) == "2026-11-21 09:14:36 UTC"
