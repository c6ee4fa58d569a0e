"""Questions of a replica about its shard's row: one at a time, each answered."""

import asyncio
from collections.abc import Callable
from threading import Thread

import pytest
from typing_extensions import override

from app.cluster.metadata.nodes import row_questions
from app.cluster.metadata.nodes.row_questions import RowQuestions, Rows
from app.cluster.metadata.nodes.shard_rows import ChangedRow, SeenRow
from app.cluster.replication.events import DatabaseAway, RowChanged, RowSeen
from app.cluster.replication.shard_row import HandOver, Renew, RowChange, ShardRow
from app.cluster.replication.terms import Term
from app.domain.errors import MetadataUnavailable
from app.replica.runner import ELECTED_S
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

ROW = ShardRow(Term(4, 40), lease_until_ms=900)
SEEN = SeenRow(ROW, 1_000)
RENEW = Renew(Term(4, 40), 500)


class SlowRows(Rows):
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[RowChange | None] = []
        self.let = asyncio.Event()
        self.error: Exception | None = None
        self.is_there = True

    @override
    async def read(self) -> SeenRow | None:
        await self._ask(None)
        return SEEN if self.is_there else None

    @override
    async def change(self, change: RowChange) -> ChangedRow | None:
        await self._ask(change)
        return ChangedRow(SEEN, is_done=True) if self.is_there else None

    async def _ask(self, change: RowChange | None) -> None:
        self.asked.append(change)
        await self.let.wait()
        if self.error is not None:
            raise self.error


class Asking:
    def __init__(self) -> None:
        self.rows = SlowRows()
        self.answers: list[object] = []
        self.told = asyncio.Event()
        self.now_ms = 77
        self.questions = RowQuestions(self.rows, self._tell, lambda: self.now_ms)

    def _tell(self, answer: object) -> None:
        self.answers.append(answer)
        self.told.set()

    async def answer_to(self, ask: Callable[[], object]) -> object:
        self.rows.let.set()
        self.told.clear()
        ask()
        await self.told.wait()
        return self.answers[-1]


@pytest.fixture
async def asking() -> Asking:
    return Asking()


async def test_the_row_and_a_change_of_it_are_told_with_when_they_were_asked(
    asking: Asking,
) -> None:
    assert await asking.answer_to(asking.questions.read_row) == RowSeen(ROW, -100, 77)
    told = await asking.answer_to(lambda: asking.questions.change_row(RENEW))
    assert told == RowChanged(RENEW, ROW, True, 77)


async def test_it_may_be_asked_on_another_thread(asking: Asking) -> None:
    thread = Thread(target=asking.questions.read_row)
    assert await asking.answer_to(thread.start) == RowSeen(ROW, -100, 77)
    thread.join()


async def test_one_question_is_under_way_and_of_equal_ones_that_wait_one(asking: Asking) -> None:
    questions = asking.questions
    other = Renew(Term(5, 50), 500)
    questions.read_row()
    await until(lambda: bool(asking.rows.asked))
    for _ in range(600):
        questions.read_row()
        questions.change_row(RENEW)
        questions.change_row(other)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asking.rows.asked == [None], "the others wait"
    asking.rows.let.set()
    await until(lambda: len(asking.answers) == 4)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asking.rows.asked == [None, None, RENEW, other], "in the order they were first asked"


async def test_one_that_waits_counts_from_when_it_was_last_asked(asking: Asking) -> None:
    """A candidate takes no row that was asked for before it stood."""
    questions = asking.questions
    questions.change_row(Renew(Term(5, 50), 500))
    await until(lambda: bool(asking.rows.asked))
    last = Renew(Term(4, 40), 500)
    for asking.now_ms, renew in ((100, RENEW), (900, last)):
        questions.read_row()
        questions.change_row(renew)
    asking.rows.let.set()
    await until(lambda: len(asking.answers) == 3)
    assert asking.answers[1] == RowSeen(ROW, -100, 900)
    answer = asking.answers[2]
    assert isinstance(answer, RowChanged)
    assert answer.asked_ms == 900
    assert answer.change is last, "the machine knows its changes by identity"


async def test_what_is_not_known_is_told_so(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = asking.questions
    asking.rows.error = MetadataUnavailable("away")
    assert await asking.answer_to(questions.read_row) == DatabaseAway(None)
    assert await asking.answer_to(lambda: questions.change_row(RENEW)) == DatabaseAway(RENEW)
    asking.rows.error = ValueError("a row that was changed by hand")
    assert await asking.answer_to(questions.read_row) == DatabaseAway(None)
    asking.rows.error, asking.rows.is_there = None, False
    assert await asking.answer_to(questions.read_row) == DatabaseAway(None)
    assert await asking.answer_to(lambda: questions.change_row(RENEW)) == DatabaseAway(RENEW)
    monkeypatch.setattr(row_questions, "ANSWER_SECONDS", 0.01)
    asking.rows.let.clear()
    asking.told.clear()
    questions.change_row(RENEW)
    await asking.told.wait()
    assert asking.answers[-1] == DatabaseAway(RENEW), "it may have been carried out"


async def test_behind_its_end_nothing_is_asked(asking: Asking) -> None:
    asking.questions.read_row()
    await until(lambda: bool(asking.rows.asked))
    asking.questions.change_row(RENEW)
    await asyncio.sleep(0)
    await asking.questions.close()
    asking.questions.read_row()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (asking.rows.asked, asking.answers) == ([None], [])


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_hand_over_is_carried_out_before_the_end(
    asking: Asking, is_under_way: bool
) -> None:
    """And nothing else that waits: one that has stopped is not to be elected."""
    last = HandOver(Term(4, 40), "b")
    others: list[RowChange] = [RENEW, Renew(Term(5, 50), 500)]
    for change in [last, *others] if is_under_way else [*others, last]:
        asking.questions.change_row(change)
    await until(lambda: bool(asking.rows.asked))
    closing = asyncio.ensure_future(asking.questions.close())
    await asyncio.sleep(0)
    asking.rows.let.set()
    await closing
    assert asking.rows.asked == ([last] if is_under_way else [RENEW, last])


async def test_the_end_does_not_wait_for_a_database_that_is_silent(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_questions, "CLOSING_SECONDS", 0.01)
    asking.questions.change_row(HandOver(Term(4, 40), "b"))
    await until(lambda: bool(asking.rows.asked))
    await asking.questions.close()
    assert not asking.answers


async def test_an_end_that_is_cut_off_leaves_nobody_asking(asking: Asking) -> None:
    asking.questions.change_row(HandOver(Term(4, 40), "b"))
    await until(lambda: bool(asking.rows.asked))
    task = asking.questions._asking
    assert task is not None
    closing = asyncio.ensure_future(asking.questions.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    assert task.cancelled()


def test_a_stop_waits_for_longer_than_two_questions() -> None:
    """What became of an election may be asked for behind what the row is."""
    assert ELECTED_S > 2 * row_questions.ANSWER_SECONDS
