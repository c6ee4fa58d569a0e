"""What of a stream's credit is used up, by what shards have said."""

from app.api.relay.streams.unsettled import UnsettledOfShards
from app.broker.streams.credit_elsewhere import Unsettled
from app.domain.limits import HELD_DELIVERY_MS_MAX


def test_shards_use_up_one_credit_and_what_is_older_says_nothing() -> None:
    unsettled = UnsettledOfShards(4)
    assert unsettled.note("a", Unsettled(1, 5, 2, 1_000), 0.0)
    assert unsettled.note("b", Unsettled(9, 1, 1, 2_000), 0.0)
    assert unsettled.room(0.0) == 1
    assert not unsettled.note("a", Unsettled(1, 4, 0, 0), 0.0)
    assert not unsettled.note("a", Unsettled(1, 5, 0, 0), 0.0)
    assert (unsettled.room(0.0), unsettled.version("a"), unsettled.version("c")) == (1, 5, 0)
    assert unsettled.note("a", Unsettled(1, 6, 0, 0), 0.0)
    assert (unsettled.room(0.0), unsettled.is_used("a"), unsettled.is_used("b")) == (3, False, True)


def test_a_shard_that_says_no_more_gives_its_room_back_by_time() -> None:
    unsettled = UnsettledOfShards(4)
    unsettled.note("a", Unsettled(1, 5, 3, 1_000), 10.0)
    assert (unsettled.room(10.9), unsettled.until_s()) == (1, 11.0)
    assert (unsettled.room(11.0), unsettled.until_s()) == (4, None)


def test_what_is_given_without_a_count_has_one_until_its_leases_end() -> None:
    unsettled = UnsettledOfShards(4)
    unsettled.count_unsaid("a", 1, 5.0)
    unsettled.count_unsaid("a", 2, 8.0)
    assert (unsettled.room(0.0), unsettled.is_used("a")) == (1, False)
    unsettled.note("a", Unsettled(1, 1, 1, 20_000), 0.0)
    assert unsettled.room(4.9) == 0
    assert [unsettled.room(at_s) for at_s in (5.0, 8.0, 20.0)] == [1, 3, 4]


def test_a_shard_is_used_before_a_time_if_what_it_said_counts_no_more_by_then() -> None:
    unsettled = UnsettledOfShards(4)
    unsettled.note("a", Unsettled(1, 5, 1, 10_000), 0.0)
    assert [unsettled.is_used("a", at_s) for at_s in (9.9, 10.0)] == [False, True]


def test_what_was_given_in_an_earlier_epoch_counts_beside_that_of_the_new_one() -> None:
    unsettled = UnsettledOfShards(4)
    unsettled.note("a", Unsettled(1, 5, 2, 5_000), 0.0)
    assert unsettled.note("a", Unsettled(2, 1, 1, 1_000), 0.0)
    assert unsettled.room(0.0) == 1
    assert unsettled.note("a", Unsettled(2, 2, 0, 0), 0.5)
    assert (unsettled.room(0.5), unsettled.is_used("a")) == (2, False)
    assert not unsettled.note("a", Unsettled(1, 99, 4, 9_000), 0.5)
    assert unsettled.room(5.0) == 4


def test_what_was_given_before_a_failover_counts_no_longer_than_the_next_leader_holds_it() -> None:
    held_s = HELD_DELIVERY_MS_MAX / 1_000
    unsettled = UnsettledOfShards(4)
    unsettled.note("a", Unsettled(1, 5, 2, 12 * 3_600_000), 0.0)
    unsettled.note("b", Unsettled(1, 5, 1, 3_600_000), 0.0)
    assert unsettled.note("a", Unsettled(2, 1, 0, 0), 10.0)
    assert [unsettled.room(at_s) for at_s in (10.0, held_s + 9, held_s + 10)] == [1, 1, 3]
