"""What a stream of all shards does when its client is slow, or a shard breaks or is silent."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from app.api.peers.connection import Interrupted
from app.domain.errors import NotLeader, ShardUnavailable
from app.domain.handles.cursors import BEGINNING, encode_cursor
from tests.unit.api.relay.merged_streams import (
    TOPIC,
    Client,
    Script,
    Shards,
    Step,
    end,
    followed,
    message,
    offsets_in,
    place,
)


def says(*steps: Step) -> Script:
    """Whatever it is asked."""
    return lambda _query: steps


def goes_on(queue_id: int, count: int, queues: int = 2) -> Script:
    """The messages of a queue from where the shard is asked."""

    def script(query: dict[str, str]) -> Iterator[Step]:
        offsets = offsets_in(query["cursor"]) if "cursor" in query else [0] * queues
        if offsets[queue_id] == BEGINNING:
            offsets[queue_id] = 0
        yield place(*offsets)
        for offset in range(offsets[queue_id], count):
            offsets[queue_id] = offset + 1
            yield message(queue_id, offset, *offsets)

    return script


BEATS: list[Step] = [1.0, b"\n"] * 200
QUIET = says(place(0, 0))


def stop_at(mark: bytes, seconds: float = 0.0) -> partial[None]:
    def prepare(client: Client) -> None:
        client.stops_at, client.stops_s = mark, seconds

    return partial(prepare)


# --- a slow client


def test_what_a_slow_reader_was_not_given_is_not_in_its_last_cursor() -> None:
    late = says(place(0, 0), message(0, 0, 1, 0), 1.0, message(0, 1, 2, 0))
    found = followed(Shards({"a": [late], "b": [QUIET]}), "at=earliest", prepare=stop_at(b'"0.0"'))
    assert (found.texts, found.end) == (["0.0"], ("slow_reader", [1, 0]))


def test_nor_is_what_a_reader_was_not_given_that_may_not_have_it() -> None:
    late = says(place(0, 0), message(0, 0, 1, 0), 1.0, message(0, 1, 2, 0))

    def prepare(client: Client) -> None:
        client.stops_at = b'"0.0"'
        refusal = NotLeader("it", "a", None, 1)
        asyncio.get_running_loop().call_later(2.0, client.stream.refuse, refusal)

    found = followed(Shards({"a": [late], "b": [QUIET]}), "at=earliest", prepare=prepare)
    assert (found.texts, found.end) == (["0.0"], ("access_ended", [1, 0]))


def test_a_slow_reader_is_given_nothing_twice_by_a_shard_that_breaks() -> None:
    broken = says(place(0, 0), 5.0, message(0, 0, 1, 0), Interrupted())
    scripts = {"a": [broken, goes_on(0, 2)], "b": [goes_on(1, 1)]}
    shards = Shards(scripts, stream_heartbeat_ms=3_000)  # which waits for the client
    found = followed(shards, "at=earliest&duration=60s", prepare=stop_at(b'"1.0"', 20.0))
    assert sorted(found.texts) == ["0.0", "0.1", "1.0"]
    assert found.end == ("time_limit", [2, 1])


def test_a_shard_that_was_read_no_further_for_its_client_is_asked_again() -> None:
    slow = says(place(0, 0), end("slow_reader"), Interrupted())
    shards = Shards({"a": [QUIET], "b": [slow, goes_on(1, 1)]})
    found = followed(shards, "duration=30s")
    assert (found.texts, found.end) == (["1.0"], ("time_limit", [0, 1]))


@pytest.mark.parametrize("mark", [b'"0.0"', b""], ids=["slow", "reads"])
def test_a_node_that_stops_waits_for_no_reader(mark: bytes) -> None:
    late = says(place(0, 0), message(0, 0, 1, 0), 5.0, message(0, 1, 2, 0))
    shards = Shards({"a": [late], "b": [QUIET]})

    def prepare(client: Client) -> None:
        client.stops_at = mark
        asyncio.get_running_loop().call_later(2.5, shards.stops.set)

    found = followed(shards, "at=earliest", prepare=prepare)
    assert (found.texts, found.end) == (["0.0"], ("draining", [1, 0]))
    assert found.written[-1][0] == 2.5


# --- shards that break or say nothing


def test_nothing_comes_twice_of_a_shard_that_breaks_before_another_has_begun() -> None:
    broken = says(place(0, 0) + message(0, 0, 1, 0), Interrupted())
    shards = Shards({"a": [broken, goes_on(0, 2)], "b": [says(3.0, place(0, 0))]})
    found = followed(shards, "at=earliest&duration=30s")
    assert (found.texts, found.end) == (["0.0", "0.1"], ("time_limit", [2, 0]))


def test_a_shard_of_which_no_heartbeat_comes_is_away_and_asked_again() -> None:
    beats = says(place(0, 0), *BEATS)
    shards = Shards({"a": [beats], "b": [QUIET, goes_on(1, 1)]}, stream_heartbeat_ms=1_000)
    found = followed(shards, "duration=60s")
    told = [each["partial"] for each in found.lines if "partial" in each]
    assert told[:2] == [["b"], []]
    assert found.texts == ["1.0"]
    assert shards.times_asked("a") == 1, "it beats"


def test_a_shard_that_does_not_begin_its_answer_is_asked_again() -> None:
    shards = Shards({"a": [QUIET], "b": [says(), goes_on(1, 1)]})
    found = followed(shards, "at=earliest&duration=20s")
    assert found.lines[0] == {"partial": ["b"]}
    assert (found.texts, found.end) == (["1.0"], ("time_limit", [0, 1]))


def test_a_shard_is_not_silent_while_its_client_holds_it_up() -> None:
    much = says(place(0, 0), *[message(0, each, each + 1, 0) for each in range(9)])
    shards = Shards({"a": [much], "b": [QUIET]}, stream_heartbeat_ms=1_000)
    shards.scripts["b"] = [says(place(0, 0), *BEATS)]
    found = followed(shards, "duration=22s", prepare=stop_at(b'"0.0"', 20.0))
    assert len(found.texts) == 9
    assert shards.times_asked("a") == 1


# --- heartbeats


def test_the_client_hears_a_heartbeat_however_many_shards_beat() -> None:
    beats = [says(place(0, 0), each / 10, *BEATS) for each in range(2)]
    shards = Shards({"a": beats[:1], "b": beats[1:]}, stream_heartbeat_ms=1_000)
    found = followed(shards, "duration=10500ms")
    assert [part for _, part in found.written[1:-1]] == [b"\n"] * 10


# --- where it begins, and topics that grow


def test_an_empty_last_event_id_is_none() -> None:
    shards = Shards({"a": [QUIET], "b": [QUIET]})
    followed(shards, "tail=3&duration=5s", (b"last-event-id", b""))
    assert shards.asked[0] == ("a", {"tail": "3", "duration": "5s"})


def test_a_last_event_id_outweighs_where_the_url_begins() -> None:
    shards = Shards({"a": [QUIET], "b": [QUIET]})
    cursor = encode_cursor(TOPIC, [3, 4])
    followed(shards, "tail=3&duration=5s", (b"last-event-id", cursor.encode()))
    assert shards.asked[0] == ("a", {"cursor": cursor, "duration": "5s"})


def test_a_cursor_says_no_place_for_a_queue_of_which_nothing_was_read() -> None:
    away = ShardUnavailable("it is away", hint="wait")
    shards = Shards({"a": [says(message(0, 7, 8, 0))], "b": [says(away)]})
    found = followed(shards, "at=earliest&duration=30s")
    assert found.end == ("time_limit", [8, BEGINNING])


def test_a_cursor_is_cut_to_the_queues_of_the_topic() -> None:
    shards = Shards({"a": [goes_on(0, 1)], "b": [QUIET]})
    found = followed(shards, f"duration=5s&cursor={encode_cursor(TOPIC, [0] * 9_000)}")
    assert found.end == ("time_limit", [1, 0])


def test_a_queue_is_heard_of_that_another_node_knows_already() -> None:
    shards = Shards({"a": [says(place(0, 0), message(2, 0, 0, 0, 1))], "b": [QUIET]})
    shards.refreshed_to = "a", "b", "a"
    found = followed(shards, "duration=5s")
    assert (found.texts, found.end) == (["2.0"], ("time_limit", [0, 0, 1]))


def test_it_has_a_place_also_while_the_database_does_not_answer() -> None:
    shards = Shards({"a": [says(place(0, 0), message(2, 0, 0, 0, 1))], "b": [QUIET]})
    shards.refreshed_to = "a", "b"
    found = followed(shards, "duration=5s")
    assert (found.texts, found.end) == (["2.0"], ("time_limit", [0, 0, 1]))


def test_a_topic_that_grows_into_another_shard_is_followed_there() -> None:
    grown = goes_on(2, 1, queues=3)

    def script(query: dict[str, str]) -> Iterator[Step]:
        assert offsets_in(query["cursor"]) == [0, 0], "what is added is read from its beginning"
        yield from grown({})

    shards = Shards({"a": [QUIET], "b": [QUIET], "c": [script]}, "a", "b")

    def prepare(_client: Client) -> None:
        asyncio.get_running_loop().call_later(3.0, shards.grow, "a", "b", "c")

    found = followed(shards, "duration=10s", prepare=prepare)
    assert (found.texts, found.end) == (["2.0"], ("time_limit", [0, 0, 1]))


@pytest.mark.parametrize("start", ["at=latest", "tail=1"])
def test_without_a_place_in_every_queue_there_is_no_cursor(start: str) -> None:
    def prepare(client: Client) -> None:
        refusal = NotLeader("it", "a", None, 1)
        asyncio.get_running_loop().call_later(1.0, client.stream.refuse, refusal)

    shards = Shards({"a": [QUIET], "b": [says(9.0, place(0, 0))]})
    found = followed(shards, start, prepare=prepare)
    assert "cursor" not in found.lines[-1]["end"]
