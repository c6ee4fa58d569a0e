"""How long a stop waits for another replica to lead."""

from app.main import STOP_SECONDS
from app.node_parts.own_shard import LEAVE_SECONDS
from app.node_parts.replicated_shard import HAND_OVER_SECONDS
from app.replica.runner import ELECTED_S, StopWait

SINCE_S = 100.0


def over_after(*, heard_s: float | None, leads: bool) -> float:
    """Seconds behind its begin at which the wait of a stop is over, which is heard by then."""
    waits = StopWait(SINCE_S, HAND_OVER_SECONDS)
    for step in range(1_000):
        passed_s = step / 50
        is_undecided = heard_s is None or passed_s < heard_s
        if waits.is_over(SINCE_S + passed_s, is_undecided=is_undecided, leads=leads):
            return passed_s
    raise AssertionError("it never ends")


def test_one_that_is_found_to_lead_late_has_the_whole_time_to_hand_over() -> None:
    """Its thread may have waited for the disk, or it was elected just now."""
    for heard_s in (0.0, 1.0, 4.2):
        assert over_after(heard_s=heard_s, leads=True) == heard_s + HAND_OVER_SECONDS
    assert ELECTED_S + HAND_OVER_SECONDS + LEAVE_SECONDS <= STOP_SECONDS


def test_who_does_not_lead_waits_for_nobody() -> None:
    assert over_after(heard_s=0.0, leads=False) == 0.0
    assert over_after(heard_s=4.2, leads=False) == 4.2


def test_what_is_never_heard_is_not_waited_for_without_end() -> None:
    assert over_after(heard_s=None, leads=True) == ELECTED_S


def test_a_hand_over_is_over_as_soon_as_another_one_leads() -> None:
    waits = StopWait(SINCE_S, HAND_OVER_SECONDS)
    assert not waits.is_over(SINCE_S, is_undecided=False, leads=True)
    assert waits.is_over(SINCE_S + 0.1, is_undecided=False, leads=False)
