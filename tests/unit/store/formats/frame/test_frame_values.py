"""What the fields of a message may hold: a frame refuses what JSON refuses, in the same words."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.errors import InvalidRequest, MalformedFrame
from app.domain.limits import Limits
from app.domain.message import Message, check_message
from app.store.formats.frame.batch_frame import RequestFrame, parse_request
from app.store.formats.frame.frame_messages import messages_of
from tests.support.clients.frames import request_frame

LIMITS = Limits()
GOOD = Message(b"good", tag="created", keys=("k1", "k2"), properties={"note": "a  b || * \t"})

REFUSED: dict[str, Message] = {
    "tag of a filter": Message(b"", tag="a||b"),
    "tag with a bar": Message(b"", tag="a|b"),
    "every tag": Message(b"", tag="*"),
    "space before a tag": Message(b"", tag=" a"),
    "space behind a tag": Message(b"", tag="a "),
    "blank tag": Message(b"", tag=" "),
    "line feed in a tag": Message(b"", tag="a\nb"),
    "control character in a tag": Message(b"", tag="a\x7fb"),
    "wide space behind a tag": Message(b"", tag="a\u3000"),
    "text direction in a tag": Message(b"", tag="a\u202eb"),
    "separator in a tag": Message(b"", tag="a\x01b"),
    "long tag": Message(b"", tag="a" * (LIMITS.tag_bytes_max + 1)),
    "tab in a key": Message(b"", keys=("a\tb",)),
    "wide space in a key": Message(b"", keys=("a\u2003b",)),
    "empty key between others": Message(b"", keys=("a", "", "b")),
    "empty key in front": Message(b"", keys=("", "b")),
    "empty key at the end": Message(b"", keys=("a", "")),
    "long key": Message(b"", keys=("a", "b" * 256)),
    "many keys": Message(b"", keys=("k",) * (LIMITS.keys_count_max + 1)),
    "space in an id": Message(b"", unique_id="a b"),
    "an id beyond ASCII": Message(b"", unique_id="\u00e9"),
    "long id": Message(b"", unique_id="i" * 256),
    "separator in a sharding key": Message(b"", sharding_key="a\x01b"),
    "long sharding key": Message(b"", sharding_key="s" * 1_025),
    "long content type": Message(b"", content_type="t" * 256),
    "separator in a property": Message(b"", properties={"own": "a\x01b"}),
}


def parsed(*messages: Message) -> RequestFrame:
    return parse_request(request_frame(messages, "orders"), topic="orders", limits=LIMITS)


@pytest.mark.parametrize("message", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("are_alike", [False, True])
def test_what_json_refuses_is_refused_with_its_words_and_the_record(
    message: Message, are_alike: bool
) -> None:
    with pytest.raises(InvalidRequest) as of_json:
        check_message(message, LIMITS)
    with pytest.raises(MalformedFrame) as caught:
        parsed(*[message] * 3) if are_alike else parsed(GOOD, GOOD, message, GOOD)
    index = 0 if are_alike else 2
    assert caught.value.detail == f"record {index}: {of_json.value.detail}"
    assert caught.value.hint == of_json.value.hint
    assert caught.value.fields["index"] == index


@pytest.mark.parametrize("unique_id", ["01" + "0a" * 16, "schedule:nightly:1"])
def test_an_id_that_looks_like_a_nodes_is_refused_as_nothing_can_be_written_beside_it(
    unique_id: str,
) -> None:
    with pytest.raises(MalformedFrame, match=r"record 1: .* an id that a node gives") as caught:
        parsed(GOOD, msgspec.structs.replace(GOOD, properties={"UNIQ_KEY": unique_id}))
    assert caught.value.fields["index"] == 1
    (taken,) = messages_of(parsed(msgspec.structs.replace(GOOD, unique_id="01-of-mine")))
    assert taken.unique_id == "01-of-mine"


def test_a_record_was_born_at_a_time_that_json_takes() -> None:
    with pytest.raises(MalformedFrame, match="record 1: born time is negative"):
        parsed(GOOD, msgspec.structs.replace(GOOD, born_time_ms=-5))


WORDS = st.text(st.sampled_from("ab|* \0\t\n\x7f\u00e9\u3000\u202e"), min_size=1, max_size=4)
MESSAGES = st.builds(
    Message,
    body=st.just(b"body"),
    tag=st.none() | WORDS,
    keys=st.lists(WORDS, max_size=2).map(tuple),
    sharding_key=st.none() | WORDS,
    content_type=st.none() | WORDS,
    unique_id=st.none() | WORDS,
    properties=st.dictionaries(st.sampled_from(["p", "TAG", "KEY4"]), WORDS, max_size=2),
)


def fault_of(message: Message) -> str | None:
    try:
        check_message(message, LIMITS)
    except InvalidRequest as error:
        return error.detail
    return None


@given(st.lists(MESSAGES, min_size=1, max_size=4))
@example([Message(b"", keys=("a", "b c"))])
@example([Message(b"", tag="a\0b")])
@example([Message(b"", unique_id="a\0b"), Message(b"")])
@example([Message(b"", keys=("a\0b",), sharding_key="\0", properties={"p": "\0"})])
def test_a_frame_is_taken_when_json_takes_all_its_messages(messages: list[Message]) -> None:
    for number, each in enumerate(messages):  # a key with a space is two of a record's
        words = tuple(" ".join(each.keys).split(" ")) if each.keys else ()
        unique_id = each.unique_id and f"{each.unique_id}{number}"
        messages[number] = msgspec.structs.replace(each, keys=words, unique_id=unique_id)
    faults = [fault_of(each) for each in messages]
    if any(faults):
        with pytest.raises(MalformedFrame) as caught:
            parsed(*messages)
        index = int(str(caught.value.fields["index"]))
        assert index == next(number for number, fault in enumerate(faults) if fault)
    else:
        taken = messages_of(parsed(*messages))
        sent = [msgspec.structs.replace(each, born_time_ms=1) for each in messages]
        assert taken == sent
