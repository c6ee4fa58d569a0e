"""Where what is new goes while shards drain."""

from hypothesis import given
from hypothesis import strategies as st

from app.cluster.metadata.snapshot import TopicView
from app.domain.message import queue_for_sharding_key
from app.domain.positions import FlushMode, TimestampMs
from app.domain.settings import Permission, TopicType, TraceMode
from app.domain.shards.takes import Takes, intake_of

NAMES = "abcd"
KEYS = [f"key-{number}" for number in range(200)]
SHARDS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=12).map(tuple)
DRAINS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([Takes.KEYED, Takes.NONE]))


def topic(
    shards: tuple[str, ...], drains: dict[str, Takes], write_queues: int | None = None, **more: int
) -> TopicView:
    return TopicView(
        name="orders",
        queues=len(shards),
        type=TopicType.NORMAL,
        flush=FlushMode.ASYNC,
        retention_ms=1,
        trace=TraceMode.ON,
        trace_rate=1.0,
        generation=1,
        created_ms=TimestampMs(1),
        updated_ms=TimestampMs(1),
        version=1,
        write_queues_set=write_queues,
        shards=shards,
        here="a",
        drains=tuple(drains.items()),
        first_queues=more.get("first_queues", len(shards)),
    )


@given(SHARDS, DRAINS)
def test_nothing_new_goes_to_a_shard_that_drains_while_another_takes_it(
    shards: tuple[str, ...], drains: dict[str, Takes]
) -> None:
    intake = intake_of(shards, drains, len(shards), len(shards))
    taking = [number for number, name in enumerate(shards) if name not in drains]
    view = topic(shards, drains)
    if not taking:
        keyed = [number for number, name in enumerate(shards) if drains[name] is Takes.KEYED]
        assert list(intake.open) == (keyed or list(range(len(shards)))), "they go somewhere"
        assert not intake.moved.intersection(intake.open)
    else:
        assert list(intake.open) == taking
        for key in KEYS:
            for chosen in view.queue_of_key(key), view.home_of(key):
                assert drains.get(shards[chosen]) is not Takes.NONE
    assert view.is_open_here == any(shards[each] == "a" for each in intake.open)


@given(SHARDS, DRAINS)
def test_keys_stay_where_their_shard_takes_them(
    shards: tuple[str, ...], drains: dict[str, Takes]
) -> None:
    view = topic(shards, drains)
    for key in KEYS:
        before = queue_for_sharding_key(key, len(shards))
        if drains.get(shards[before]) is not Takes.NONE:
            assert view.queue_of_key(key) == before


def test_keys_that_move_are_spread_over_all_that_take_them() -> None:
    view = topic(tuple("abcabc"), {"b": Takes.NONE})
    moved = {view.queue_of_key(key) for key in KEYS if queue_for_sharding_key(key, 6) in (1, 4)}
    assert moved == {0, 2, 3, 5}


def test_keys_that_moved_do_not_come_back_as_the_shard_that_has_them_drains() -> None:
    drained: dict[str, Takes] = {"a": Takes.NONE}
    before = topic(tuple("abab"), drained)
    after = topic(tuple("abab"), {**drained, "b": Takes.KEYED})
    assert [after.queue_of_key(key) for key in KEYS] == [before.queue_of_key(key) for key in KEYS]
    assert list(after.open_queues) == [1, 3], "what is empty stays so"
    last = topic(tuple("abab"), {**drained, "b": Takes.NONE})
    assert list(last.open_queues) == [0, 1, 2, 3], "messages have to go somewhere"


def test_a_key_that_moved_moves_again_only_with_the_keys_of_the_shard_that_has_it() -> None:
    shards = tuple("abcd")
    queues = []
    for drains in (
        {"a": Takes.NONE},
        {"a": Takes.NONE, "b": Takes.KEYED},
        {"a": Takes.NONE, "b": Takes.NONE},
    ):
        view = topic(shards, drains)
        queues.append([(view.queue_of_key(key), view.home_of(key)) for key in KEYS])
    first, keyed, second = queues
    assert keyed == first, "no operator has named the moment"
    for was, now in zip(first, second, strict=True):
        for before, after in zip(was, now, strict=True):
            assert after == before or before == 1
    assert {queue for queue, _ in second} == {2, 3}


def test_what_is_nobodys_takes_nothing_while_a_shard_that_drains_can() -> None:
    for takes in (Takes.KEYED, Takes.NONE):
        view = topic(("a", "", "a"), {"a": takes})
        assert list(view.open_queues) == [0, 2]
        assert {view.queue_of_key(key) for key in KEYS} == {0, 2}


def test_what_a_queue_takes_and_what_clients_may_do_with_it() -> None:
    view = topic(tuple("abca"), {"a": Takes.KEYED, "c": Takes.NONE}, write_queues=3)
    assert [view.takes_of(each) for each in range(4)] == ["keyed", "all", "none", "none"]
    assert [view.permission_of(each).value for each in range(4)] == ["r", "rw", "r", "r"]
    assert topic(("a",), {}).permission_of(0) is Permission.READ_WRITE


def test_a_home_behind_the_queues_that_are_written_moves_too() -> None:
    view = topic(tuple("abc"), {"c": Takes.NONE}, write_queues=2, first_queues=3)
    homes = {view.home_of(key) for key in KEYS}
    assert homes == {0, 1}


def test_a_home_that_has_moved_stays_when_the_topic_has_more_queues_or_another_shard_drains() -> (
    None
):
    drained: dict[str, Takes] = {"c": Takes.NONE}
    before = topic(tuple("abc"), drained)
    homes = [before.home_of(key) for key in KEYS]
    assert set(homes) == {0, 1}
    grown = topic(tuple("abcabd"), drained, first_queues=3)
    assert [grown.home_of(key) for key in KEYS] == homes
    draining = topic(tuple("abc"), {**drained, "b": Takes.KEYED})
    assert [draining.home_of(key) for key in KEYS] == homes
    elsewhere = topic(tuple("ccab"), drained, first_queues=2)
    assert {elsewhere.home_of(key) for key in KEYS} == {2, 3}, "no other has any of the first"


def test_queues_of_a_shard_that_was_released_are_as_those_of_one_that_takes_nothing() -> None:
    view = topic(("a", "", "a"), {})
    assert list(view.open_queues) == [0, 2]
    assert view.moved == {1}
    assert {view.queue_of_key(key) for key in KEYS} == {0, 2}
    assert list(topic(("", ""), {}).open_queues) == [0, 1], "no shard has them yet"
