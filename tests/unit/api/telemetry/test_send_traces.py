"""What a request has stored, with neighbours together."""

from app.api.telemetry.send_traces import runs_in, waiting_in
from app.broker.results import SendResult
from app.domain.errors import CurlewError, StateConflict
from app.domain.handles.recall import RecallHandle, RecallSigner

SIGNER = RecallSigner(bytes(32), bytes(4))


def delayed(waiting_offset: int, queue_id: int = 0) -> SendResult:
    handle = SIGNER.issue(RecallHandle("orders", waiting_offset, 9, f"id-{waiting_offset}"))
    return SendResult("id", "orders", queue_id, -1, 5, 9, handle)


def placed(offset: int, queue_id: int = 0) -> SendResult:
    return SendResult("id", "orders", queue_id, offset, 5)


def test_delayed_neighbours_are_one_run_of_where_they_wait() -> None:
    big = 2**62
    stored: list[SendResult | CurlewError] = [delayed(7), delayed(8), placed(1), delayed(big)]
    stored += [StateConflict("no"), delayed(big + 1)]
    assert list(waiting_in(stored)) == [(7, 2, 5), (big, 2, 5)]
    assert list(waiting_in([delayed(8), delayed(7)])) == [(8, 1, 5), (7, 1, 5)]
    assert list(waiting_in([placed(1)])) == []
    assert list(waiting_in(delayed(3))) == [(3, 1, 5)]


def test_neighbours_in_a_queue_are_one_run_and_so_are_its_delayed() -> None:
    stored = [placed(0), placed(1), placed(9, 1), delayed(4), delayed(5), placed(2), placed(3)]
    assert sorted(runs_in(stored)) == [(0, -1, 2, 5), (0, 0, 2, 5), (0, 2, 2, 5), (1, 9, 1, 5)]


def test_a_batch_that_lies_in_one_piece_is_one_run() -> None:
    assert list(runs_in([placed(3), placed(4), placed(5)])) == [(0, 3, 3, 5)]
    assert list(runs_in([placed(3, 2)])) == [(2, 3, 1, 5)]
    assert list(runs_in([])) == []
    stored = [placed(3), placed(9), placed(5)]  # as many as there would be in between
    assert sorted(runs_in(stored)) == [(0, 3, 1, 5), (0, 5, 1, 5), (0, 9, 1, 5)]
    assert sorted(runs_in([placed(3), placed(4, 1), placed(5)])) == [
        *((0, 3, 1, 5), (0, 5, 1, 5), (1, 4, 1, 5))
    ]
    refused = StateConflict("no")
    assert list(runs_in([placed(3), refused, placed(4)])) == [(0, 3, 2, 5)]
    assert list(runs_in([refused, placed(4)])) == [(0, 4, 1, 5)]
