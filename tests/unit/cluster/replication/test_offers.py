"""What a leader offers before it has synced it, and what it confirms of that."""

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import Appended, MoveWatermark, Send, SendBlocks
from app.cluster.replication.messages import Ends, Watermark
from app.cluster.replication.terms import TermStart
from tests.unit.cluster.replication.test_leader import (
    TERM,
    WRITTEN,
    B,
    elected,
    greeting,
    promise,
    taken,
)


def test_what_the_leader_syncs_meanwhile_is_offered_and_not_confirmed() -> None:
    """Others may have it on their medium first: the leader's own counts as theirs do."""
    leader = elected()
    leader.promise_answer(promise(B))
    leader.hello("B", greeting(B))
    leader.ends("B", Ends(1, TERM, WRITTEN, WRITTEN, 9))
    end = WRITTEN + 10
    leader.appended(Appended(end, wants_sync=True, term_start=TermStart(TERM, WRITTEN)))
    leader._state.end = LogEnd(end, WRITTEN)
    taken(leader)
    leader.log_ends()
    (offered,) = [each for each in taken(leader) if isinstance(each, SendBlocks)]
    assert (offered.start, offered.end, offered.sync_to) == (WRITTEN, end, end)
    leader.ends("B", Ends(1, TERM, end, end, 9))
    assert not [each for each in taken(leader) if isinstance(each, MoveWatermark)]
    leader._state.end = LogEnd(end, end)
    leader.log_ends()
    assert MoveWatermark(end) in taken(leader)


def test_what_asked_for_no_medium_is_synced_by_followers_behind_the_leader() -> None:
    """Else nothing of topics with async flush ever were on a follower's medium."""
    leader = elected()
    leader.promise_answer(promise(B))
    leader.hello("B", greeting(B))
    leader.ends("B", Ends(1, TERM, WRITTEN, WRITTEN, 9))
    end = WRITTEN + 10
    leader.appended(Appended(WRITTEN + 5, wants_sync=True, term_start=TermStart(TERM, WRITTEN)))
    leader.appended(Appended(end, wants_sync=False))
    leader._state.end = LogEnd(end, WRITTEN + 5)
    leader.log_ends()
    (offered,) = [each for each in taken(leader) if isinstance(each, SendBlocks)]
    assert (offered.end, offered.sync_to) == (end, WRITTEN + 5)
    leader._state.end = LogEnd(end, end)
    leader.log_ends()
    leader._sign()
    signs = [each.message for each in taken(leader) if isinstance(each, Send)]
    assert [each.sync_to for each in signs if isinstance(each, Watermark)] == [end]
