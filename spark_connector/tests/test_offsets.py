"""Stream offsets: their JSON is the checkpoint's format, so the text itself is asserted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_curlew.errors import OffsetVersionUnknown
from pyspark_curlew.reading.offsets import StreamOffset, TaskLimits, TopicQueue

POSITIONS = st.dictionaries(
    st.builds(TopicQueue, st.sampled_from(["a", "b", "c-1"]), st.integers(0, 300)),
    st.integers(0, 2**62),
)


def queues(*offsets: int) -> dict[TopicQueue, int]:
    return {TopicQueue("orders", number): offset for number, offset in enumerate(offsets)}


def test_the_text_of_version_1() -> None:
    offset = StreamOffset(queues(500, 480))
    assert json.dumps(offset.to_json()) == (
        '{"fmt": "curlew", "v": 1, "topics": {"orders": {"0": 500, "1": 480}}}'
    )


def test_the_first_end_says_where_reading_began() -> None:
    offset = StreamOffset(queues(500, 480), begun_at=queues(100, 90))
    assert json.dumps(offset.to_json()) == (
        '{"fmt": "curlew", "v": 1, "topics": {"orders": {"0": 500, "1": 480}},'
        ' "from": {"orders": {"0": 100, "1": 90}}}'
    )


def test_queues_stand_in_numeric_order() -> None:
    text = json.dumps(StreamOffset(queues(*range(12))).to_json())
    assert text.index('"9"') < text.index('"10"')


@given(
    POSITIONS,
    POSITIONS,
    st.booleans(),
    st.dictionaries(st.sampled_from("ab"), st.integers(1)),
    st.none() | st.builds(TaskLimits, st.integers(0), st.integers(0), st.integers(1)),
)
def test_json_gives_the_value_back(
    positions: dict[TopicQueue, int],
    begun_at: dict[TopicQueue, int],
    fresh: bool,
    generations: dict[str, int],
    tasks: TaskLimits | None,
) -> None:
    offset = StreamOffset(positions, begun_at, fresh, generations, tasks)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(POSITIONS)
def test_the_order_of_insertion_does_not_show(positions: dict[TopicQueue, int]) -> None:
    turned = dict(reversed(positions.items()))
    texts = {json.dumps(StreamOffset(each).to_json()) for each in (positions, turned)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"v": 1, "topics": {}}, "another source"),
        ({"fmt": "kafka", "v": 1, "topics": {}}, "another source"),
        ({"fmt": "curlew", "v": 2, "topics": {}}, "offsets of version 2; this connector reads ver"),
        ({"fmt": "curlew", "v": 1}, "no 'topics'"),
        ({"fmt": "curlew", "v": 1, "topics": {"a": 5}}, "'topics' or 'from' of another form"),
        ({"fmt": "curlew", "v": 1, "topics": {"a": {"x": 5}}}, "'topics' or 'from' of another"),
        ({"fmt": "curlew", "v": 1, "topics": {}, "generations": {"a": []}}, "'generations' of an"),
        ({"fmt": "curlew", "v": 1, "topics": {}, "tasks": {"max_records": 1}}, "'tasks' of anoth"),
        ({"fmt": "curlew", "v": 1, "topics": {}, "tasks": 5}, "'tasks' of another form"),
    ],
)
def test_offsets_of_others_are_refused(document: dict[str, object], words: str) -> None:
    with pytest.raises(OffsetVersionUnknown, match=words):
        StreamOffset.from_json(document)
