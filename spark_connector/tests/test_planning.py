"""Planning: limits, tasks and losses, mostly as properties over arbitrary backlogs."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from pyspark_curlew.reading.offsets import TaskLimits, TopicQueue
from pyspark_curlew.reading.planning import (
    QUEUES_PER_TASK_MAX,
    QueueRange,
    QueueRanges,
    clamp,
    cut_queues,
    limit_bytes,
    limit_rows,
    narrow,
    plan_tasks,
    ranges_between,
    remade_topics,
    split,
)

USUAL = TaskLimits(250_000, 32, 1)
KEYS = st.builds(TopicQueue, st.sampled_from(["a", "b"]), st.integers(0, 40))
BACKLOGS = st.dictionaries(
    KEYS, st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)), max_size=20
)


def ends_of(backlogs: dict[TopicQueue, tuple[int, int]]) -> tuple[dict, dict]:
    start = {key: low for key, (low, _) in backlogs.items()}
    end = {key: low + size for key, (low, size) in backlogs.items()}
    return start, end


@given(BACKLOGS, st.integers(1, 10**7))
def test_the_limit_is_used_in_full_and_never_passed(
    backlogs: dict[TopicQueue, tuple[int, int]], rows: int
) -> None:
    start, end = ends_of(backlogs)
    limited = limit_rows(start, end, rows)
    assert limited.keys() == end.keys()
    taken = {key: limited[key] - start[key] for key in end}
    total = sum(size for _, size in backlogs.values())
    assert sum(taken.values()) == min(rows, total)
    assert all(0 <= taken[key] <= backlogs[key][1] for key in end)


@given(BACKLOGS, st.integers(20, 10**6))
def test_every_queue_with_a_backlog_advances(
    backlogs: dict[TopicQueue, tuple[int, int]], rows: int
) -> None:
    start, end = ends_of(backlogs)
    limited = limit_rows(start, end, rows)
    assert all(limited[key] > start[key] for key in end if end[key] > start[key])


@given(
    st.dictionaries(KEYS, st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=9),
    st.integers(1, 12),
)
def test_batch_after_batch_the_end_is_reached(
    backlogs: dict[TopicQueue, tuple[int, int]], rows: int
) -> None:
    start, end = ends_of(backlogs)
    total = sum(size for _, size in backlogs.values())
    batches = 0
    while start != end:
        start = limit_rows(start, end, rows)
        batches += 1
    assert batches == -(-total // rows)


@given(BACKLOGS, st.integers(1, 10**12), st.integers(1, 4096))
def test_the_limit_of_bytes_is_kept_but_for_one_message_a_queue(
    backlogs: dict[TopicQueue, tuple[int, int]], size: int, average: int
) -> None:
    start, end = ends_of(backlogs)
    averages = {key: average + key.queue for key in end if end[key] > start[key]}
    limited = limit_bytes(start, end, averages, size)
    assert limited.keys() == end.keys()
    assert all(start[key] < limited[key] <= end[key] for key in averages)
    taken = {key: limited[key] - start[key] for key in averages}
    beyond_one = sum(taken[key] * averages[key] for key in averages if taken[key] > 1)
    assert beyond_one <= size
    if sum((end[key] - start[key]) * averages[key] for key in averages) <= size:
        assert limited == end


def test_large_backlogs_get_larger_shares() -> None:
    start = {TopicQueue("a", number): 0 for number in range(3)}
    end = dict(zip(start, (1_000, 100, 1), strict=True))
    limited = limit_rows(start, end, 111)
    assert list(limited.values()) == [99, 11, 1]


def test_with_fewer_rows_than_queues_the_queues_take_turns() -> None:
    start = {TopicQueue("a", number): 0 for number in range(5)}
    end = dict.fromkeys(start, 100)
    for _ in range(5):
        start = limit_rows(start, end, 2)
    assert list(start.values()) == [2] * 5


RANGES = st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 5_000)), max_size=6).map(
    lambda sizes: [
        QueueRange("a", number, low, low + size) for number, (low, size) in enumerate(sizes)
    ]
)


@given(RANGES, st.integers(0, 2_000).filter(lambda most: most == 0 or most > 10))
def test_the_tasks_cover_the_ranges_exactly(ranges: list[QueueRange], most: int) -> None:
    tasks = split(ranges, most)
    for whole in ranges:
        pieces = sorted(
            (task for task in tasks if task.queue == whole.queue), key=lambda task: task.start
        )
        assert pieces[0].start == whole.start
        assert pieces[-1].end == whole.end
        assert all(left.end == right.start for left, right in itertools.pairwise(pieces))
        assert all(0 < piece.size <= (most or whole.size) for piece in pieces)
        assert max(p.size for p in pieces) - min(p.size for p in pieces) <= 1
    assert {task.queue for task in tasks} == {whole.queue for whole in ranges}


@given(
    RANGES, st.integers(0, 2_000).filter(lambda most: most == 0 or most > 10), st.integers(1, 90)
)
def test_at_least_so_many_tasks_if_there_are_records(
    ranges: list[QueueRange], most: int, least: int
) -> None:
    tasks = split(ranges, most, least)
    without = split(ranges, most)
    records = sum(whole.size for whole in ranges)
    assert len(tasks) == max(len(without), min(least, records))
    assert sum(task.size for task in tasks) == records
    assert all(task.size > 0 for task in tasks)
    for whole in ranges:
        pieces = sorted((t.start, t.end) for t in tasks if t.queue == whole.queue)
        assert (pieces[0][0], pieces[-1][1]) == (whole.start, whole.end)
        assert all(left[1] == right[0] for left, right in itertools.pairwise(pieces))


def test_the_largest_range_is_cut_first() -> None:
    tasks = split([QueueRange("a", 0, 0, 100), QueueRange("a", 1, 0, 10)], 0, 4)
    assert [(task.queue, task.size) for task in tasks] == [(0, 33), (1, 10), (0, 33), (0, 34)]


@given(RANGES, st.integers(0, 2_000), st.integers(0, 100), st.integers(1, 9))
def test_small_ranges_share_tasks_and_nothing_is_left_out(
    ranges: list[QueueRange], most: int, together: int, least: int
) -> None:
    ranges = [QueueRange("a", each.queue, 0, each.size % 90 + 1) for each in ranges]
    most = 0 if most < 10 else most
    tasks = plan_tasks(ranges, TaskLimits(most, together, least))
    pieces = split(ranges, most, least)
    assert sorted(pieces, key=str) == sorted((r for t in tasks for r in t.ranges), key=str)
    assert tasks == plan_tasks(ranges, TaskLimits(most, together, least))
    assert len(tasks) >= min(least, len(pieces))
    for task in tasks:
        if len(task.ranges) > 1:
            assert sum(each.size for each in task.ranges) <= min(together, most or together)
            assert all(each in ranges for each in task.ranges), "what is cut stays cut"


def test_a_few_messages_are_one_task_and_many_are_a_task_for_each_queue() -> None:
    few = [QueueRange("a", number, 7, 8) for number in range(4)]
    assert plan_tasks(few, USUAL) == [QueueRanges(tuple(few))]
    assert plan_tasks(few, USUAL._replace(min_records=0)) == few
    assert plan_tasks(few, USUAL._replace(min_tasks=2)) == few, "minPartitions goes before"
    many = [QueueRange("a", number, 0, 32) for number in range(4)]
    assert plan_tasks(many, USUAL) == many
    mixed = plan_tasks([few[0], QueueRange("a", 9, 0, 99), few[1]], USUAL)
    assert mixed == [QueueRange("a", 9, 0, 99), QueueRanges((few[0], few[1]))]


def test_a_task_reads_of_so_many_queues_at_most() -> None:
    ranges = [QueueRange("a", number, 0, 1) for number in range(2 * QUEUES_PER_TASK_MAX + 1)]
    sizes = [len(task.ranges) for task in plan_tasks(ranges, USUAL)]
    assert sizes == [QUEUES_PER_TASK_MAX, QUEUES_PER_TASK_MAX, 1]


@given(RANGES, st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_lost_ranges_leave_the_others_in_their_tasks(
    ranges: list[QueueRange], low: int, high: int, gone: int
) -> None:
    ranges = [QueueRange("a", each.queue, 0, each.size % 60 + 1) for each in ranges]
    tasks = plan_tasks(ranges, TaskLimits(20, 10, 1))
    earliest = {TopicQueue("a", each.queue): low for each in ranges if each.queue != gone}
    readable, _ = clamp(ranges, earliest, dict.fromkeys(earliest, high))
    for task, rest in zip(tasks, narrow(tasks, readable), strict=True):
        for whole, part in zip(task.ranges, rest.ranges, strict=True):
            offsets = set(range(whole.start, whole.end)) if whole.queue != gone else set()
            assert set(range(part.start, part.end)) == offsets & set(range(low, high))
            assert part.size >= 0


def test_a_topic_made_anew_is_named() -> None:
    found = remade_topics({"a": 1, "b": 4}, {"a": 1, "b": 5, "c": 1})
    assert list(found) == ["b"]
    assert "topic 'b' was deleted and made anew (generation 4 before, now 5)" in found["b"]


def test_the_first_tasks_are_of_different_queues() -> None:
    tasks = split([QueueRange("a", number, 0, 30) for number in range(3)], 10)
    assert [task.queue for task in tasks] == [0, 1, 2] * 3


def test_empty_ranges_are_left_out() -> None:
    start = {TopicQueue("a", 0): 5, TopicQueue("a", 1): 7, TopicQueue("a", 2): 9}
    end = {TopicQueue("a", 0): 5, TopicQueue("a", 1): 8, TopicQueue("a", 2): 3}
    assert ranges_between(start, end) == [QueueRange("a", 1, 7, 8)]


@given(RANGES, st.integers(0, 10**9 + 6_000), st.integers(0, 10**9 + 6_000))
def test_every_offset_is_either_readable_or_lost(
    ranges: list[QueueRange], earliest: int, latest: int
) -> None:
    earliest = min(earliest, latest)
    keys = [TopicQueue("a", whole.queue) for whole in ranges]
    readable, lost = clamp(ranges, dict.fromkeys(keys, earliest), dict.fromkeys(keys, latest))
    for whole in ranges:
        parts = sorted(
            (part.start, part.end) for part in [*readable, *lost] if part.queue == whole.queue
        )
        assert parts[0][0] == whole.start
        assert parts[-1][1] == whole.end
        assert all(left[1] == right[0] for left, right in itertools.pairwise(parts))
    assert all(earliest <= part.start and part.end <= latest for part in readable)


def test_the_words_of_a_loss() -> None:
    _, lost = clamp(
        [QueueRange("orders", 3, 1200, 2000)],
        {TopicQueue("orders", 3): 1500},
        {TopicQueue("orders", 3): 2000},
    )
    assert str(lost[0]) == (
        "topic 'orders' queue 3: offsets [1200, 1500) are gone (earliest is 1500; retention or"
        " deletion). The query would skip 300 messages."
    )


def test_a_queue_that_is_gone_is_a_loss_of_its_whole_range() -> None:
    readable, lost = clamp([QueueRange("orders", 3, 12, 20)], {}, {})
    assert readable == []
    assert (lost[0].start, lost[0].end, lost[0].reason) == (12, 20, "the queue no longer exists")


def test_queues_behind_the_position_are_named() -> None:
    begin = {TopicQueue("a", 0): 10, TopicQueue("a", 1): 10, TopicQueue("a", 2): 10}
    findings = cut_queues(begin, {TopicQueue("a", 0): 10, TopicQueue("a", 1): 4})
    assert len(findings) == 2
    assert "queue 1: was read up to 10 but now ends at 4" in findings[0]
    assert "queue 2: the queue no longer exists" in findings[1]
