"""Which shard a new queue goes to."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.domain.shards.placement import placed

COUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 20), min_size=1)


@given(COUNTS, st.integers(0, 40), st.sampled_from(["a", "z", None]))
def test_neighbours_differ_where_there_is_a_choice(
    counts: dict[str, int], number: int, neighbour: str | None
) -> None:
    chosen = placed(counts, number, neighbour)
    assert len(chosen) == number
    assert set(chosen) <= set(counts)
    if len(counts) > 1:
        row = [neighbour, *chosen]
        assert all(one != two for one, two in pairwise(row))


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 20), min_size=3),
    st.integers(200, 300),
)
def test_shards_with_few_queues_catch_up(counts: dict[str, int], number: int) -> None:
    chosen = placed(counts, number, None)
    after = {name: count + chosen.count(name) for name, count in counts.items()}
    assert max(after.values()) - min(after.values()) <= 1


def test_of_two_with_as_many_the_first_by_name_is_taken() -> None:
    assert placed({"b": 1, "a": 1, "c": 0}, 4, None) == ["c", "a", "b", "c"]
