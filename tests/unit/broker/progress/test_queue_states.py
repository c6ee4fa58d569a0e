"""States by topic, beside a plain dictionary that is changed in the same way."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.broker.progress.queue_states import QueueStates

NAMES = st.sampled_from("abc")
KEYS = st.tuples(NAMES, NAMES, st.integers(0, 2))
CHANGES = st.one_of(
    st.tuples(st.just("set"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("take"), st.tuples(st.none() | NAMES, st.none() | NAMES)),
)


@given(st.lists(CHANGES, max_size=40))
def test_they_are_those_of_a_dictionary(changes: list[tuple[str, Any]]) -> None:
    states, plain = QueueStates(), dict[Any, Any]()
    for number, (kind, what) in enumerate(changes):
        if kind == "set":
            state: Any = number
            states[what] = plain[what] = state
        elif kind == "delete":
            assert states.pop(what, None) == plain.pop(what, None)
        else:
            group, topic = what
            taken: dict[Any, Any] = {}
            for part in states.take(group=group, topic=topic):
                assert not taken.keys() & part, "taken out twice"
                taken |= part
            gone = {key for key in plain if key[0] == group or key[1] == topic}
            assert taken == {key: plain.pop(key) for key in gone}
        assert dict(states) == plain
        assert len(states) == len(plain)
        assert sorted(states.pairs()) == sorted({key[:2] for key in plain})
        for topic in "abc":
            topics = {key[1] for key in plain if key[0] == topic}
            assert sorted(states.topics_of(topic)) == sorted(topics)
            for group in "abc":
                of_pair = {k: v for k, v in plain.items() if k[:2] == (group, topic)}
                assert states.of_pair(group, topic) == of_pair
        for key in [("a", "b", 0), ("c", "c", 2)]:
            assert states.get(key) == plain.get(key)
            assert (key in states) == (key in plain)
