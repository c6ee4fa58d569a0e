"""How names of AMQP are written, and which routing keys a pattern takes."""

import re

import pytest
from curlew_client.celery.names import (
    filter_of,
    routing_key_of,
    stored_name,
    tag_of,
    tags_of,
    takes,
)
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.text(min_size=1, max_size=200)
WORDS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=5)
PARTS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("celery", "celery"),
        ("high_priority-2", "high_priority-2"),
        ("reply.celery.pidbox", "reply_x2ecelery_x2epidbox"),
        ("celery@vm", "celery_x40vm"),
        ("é", "_xc3_xa9"),
        ("a_x2eb", "a_x5fx2eb"),
        ("x" * 127, "x" * 127),
    ],
)
def test_names_are_written_as_curlew_takes_them(name: str, written: str) -> None:
    assert stored_name(name) == written


@given(NAMES, NAMES)
def test_two_names_are_never_written_alike(one: str, other: str) -> None:
    written = stored_name(one)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,127}", written)
    assert (written == stored_name(other)) == (one == other)


@given(NAMES)
def test_what_is_written_is_another_name_itself(name: str) -> None:
    """Else a queue that is named as another one is written would be that one."""
    written = stored_name(name)
    if written != name and len(written) < 100:
        assert stored_name(written) != written


def test_a_prefix_stands_before_the_name() -> None:
    assert stored_name("celery", "shop-") == "shop-celery"
    assert len(stored_name("q" * 300, "shop-")) <= 127


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty name"):
        stored_name("")


@given(st.lists(st.text(max_size=300), min_size=1, max_size=4, unique=True))
def test_tags_are_parted_again(keys: list[str]) -> None:
    tags = {tag_of(key) for key in keys}
    assert len(tags) == len(keys)
    assert tags_of(filter_of(tags)) == tags
    for tag in tags:
        assert tag.isprintable()
        assert tag == tag.strip()
        assert "|" not in tag
        assert not tag.startswith("sql:")
        assert tag != "*"
        assert len(tag.encode()) <= 128


@given(st.text(max_size=30))
def test_a_tag_says_its_routing_key(key: str) -> None:
    tag = tag_of(key)
    assert tag.startswith("%blake2b") or routing_key_of(tag) == key


def test_a_queue_that_is_bound_to_nothing_reads_what_nobody_sends() -> None:
    assert tags_of(filter_of(set())) == set()
    assert filter_of(set())


def test_a_filter_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="4096"):
        filter_of({f"{number:0100}" for number in range(60)})


@pytest.mark.parametrize(
    ("pattern", "routing_key", "does"),
    [
        ("task.*", "task.sent", True),
        ("task.*", "task.sent.late", False),
        ("task.#", "task", True),
        ("task.#", "task.sent.late", True),
        ("#", "", True),
        ("*", "", False),
        ("#.late", "late", True),
        ("*.#.late", "late", False),
        ("a.b", "a.c", False),
    ],
)
def test_a_pattern_takes(pattern: str, routing_key: str, does: bool) -> None:
    assert takes(pattern, routing_key) is does


@given(PARTS, WORDS)
def test_a_pattern_takes_what_a_slow_reading_of_it_does(parts: list[str], words: list[str]) -> None:
    def slowly(pattern: list[str], left: list[str]) -> bool:
        if not pattern:
            return not left
        if pattern[0] == "#":
            return any(slowly(pattern[1:], left[count:]) for count in range(len(left) + 1))
        return bool(left) and pattern[0] in {"*", left[0]} and slowly(pattern[1:], left[1:])

    assert takes(".".join(parts), ".".join(words)) is slowly(parts, words)
