"""An append that raises, wherever it does, leaves the store as it was.

Every function that an append calls is made to raise at its first, second, … call, until it is not
called that often. What the store has then, in memory and after a stop, is compared byte for byte
with that of a store in which the append was never made.
"""

import ast
import inspect
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from app.domain.errors import CurlewError, PropertiesTooLarge, StoreFailed, SystemBusy
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import Appended, FileSystem, StepPart
from app.store.formats.frame.batch_frame import RequestFrame
from app.store.formats.record.record import (
    PROPERTIES_BYTES_MAX,
    encode_properties,
    encode_simple_record,
)
from app.store.index import key_index
from app.store.log.commit_log import AppendCursor
from app.store.read import frame_checksums as frame_sums
from app.store.write import appender as appending
from app.store.write import record_encoding
from app.store.write.writer import Writer
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store
from tests.support.stores.turns import ManualTurns


class Injected(Exception):
    """Raised by the test; nothing in the store knows it."""


class Counted:
    """Stands for a function; raises at the call of number `at`, counting from 0."""

    def __init__(self, function: Callable[..., Any], at: int) -> None:
        self._function = function
        self._left = at
        self.has_raised = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            self.has_raised = True
            raise Injected
        return self._function(*args, **kwargs)

    def pack(self, *args: int) -> bytes:
        """For `UNIT`, whose method it stands for."""
        packed: bytes = self(*args)
        return packed


class Place(NamedTuple):
    """A function that an append calls: whose, and what it is called there."""

    owner: object
    name: str


def _called_in(module: ModuleType) -> list[str]:
    """All that the module calls by a name of its own: none can be forgotten here."""
    called = {
        node.func.id
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    found = {name: getattr(module, name) for name in called if hasattr(module, name)}
    return sorted(name for name, value in found.items() if not _is_error(value))


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


PLACES = [
    *(
        Place(module, name)
        for module in (appending, record_encoding)
        for name in (*_called_in(module), "UNIT")
    ),
    Place(RequestFrame, "units"),
    Place(AppendCursor, "_place_from"),
    Place(AppendCursor, "place_all"),
    Place(Writer, "submit"),
    Place(ManualTurns, "call_soon"),
    Place(frame_sums.FrameChecksums, "of"),
    Place(frame_sums, "sums_of_parts"),
    Place(frame_sums, "sums_of_units"),
    Place(frame_sums, "_Rest"),
]

KEYED = [Message(b"%d" % number, tag=f"t{number}", keys=("k",)) for number in range(3)]
MANY = [Message(bytes([65 + number]) * 900, message_id=f"own-{number}") for number in range(7)]
RETRIES = [Message(b"r", reconsume_times=2), Message(b"s", reconsume_times=1)]

Append = Callable[[OpenStore], object]


def _step(store: OpenStore, *parts: StepPart) -> list[Appended]:
    return store.store.append_step(parts, FlushMode.SYNC, store.outcomes.append)


APPENDS: dict[str, Append] = {
    "one": lambda store: store.append_all(KEYED[:1]),
    "one to a new queue": lambda store: store.append_all(KEYED[:1], queue_id=7),
    "several": lambda store: store.append_all(KEYED),
    "several over segments": lambda store: store.append_all(MANY),
    "retries": lambda store: store.append_all(RETRIES),
    "an entry": lambda store: _step(store, StepPart("rmq_sys_progress", 0, KEYED[:1])),
    "a step": lambda store: _step(
        store,
        StepPart("orders", 0, KEYED),
        StepPart("rmq_sys_new", 0, RETRIES),
        StepPart("orders", 0, KEYED),
        StepPart("rmq_sys_new", 0, KEYED),
    ),
    "a step over segments": lambda store: _step(
        store, StepPart("orders", 0, MANY[:3]), StepPart("new", 1, KEYED)
    ),
    "a frame": lambda store: store.append_frame(KEYED * 11),
    "a frame over segments": lambda store: store.append_frame(MANY, queue_id=3),
    "a frame behind an entry": lambda store: store.append_frame(
        KEYED * 11, queue_id=4, entry=StepPart("rmq_sys_producers", 0, KEYED[:1])
    ),
}


@pytest.fixture(autouse=True)
def same_store_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda count: "ab" * count)


def _prepared() -> OpenStore:
    """A store with some messages, and a frame that ends within a block."""
    store = open_store(SimulatedFiles(), threads=False)
    store.append_all(KEYED)
    store.append_frame(KEYED * 7)
    store.settle(2)
    return store


def _in_memory(store: OpenStore) -> dict[str, object]:
    inner: Any = store.store
    appender = inner._appender
    return {
        "end": appender.end,
        "rests": dict(appender._sums._rests),
        "pending": inner._writer.pending_bytes,
        "blocks": len(inner._writer._pending),
        "queues": [
            (queue.topic, queue.queue_id, queue.number, queue.next_offset, queue.max_offset)
            for queue in inner._queues
        ],
        "outcomes": list(store.outcomes),
    }


def _go_on(store: OpenStore) -> FileSystem:
    """Append in all ways, and stop. What the files have then is what the test compares."""
    expected = len(store.outcomes) + len(APPENDS)
    for append in APPENDS.values():
        append(store)
    store.settle(expected)
    assert store.outcomes == [None] * len(store.outcomes)
    store.store.close()
    return store.files


def _contents(files: FileSystem) -> Iterator[tuple[str, bytes]]:
    assert isinstance(files, SimulatedFiles)
    for name, inode in sorted(files.names.items()):
        yield name, bytes(inode.seen)


@pytest.mark.parametrize("name", APPENDS)
def test_an_append_that_raises_leaves_the_store_as_it_was(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = dict(_contents(_go_on(_prepared())))
    raised = 0
    for where in PLACES:
        original = getattr(where.owner, where.name)
        original = original.pack if where.name == "UNIT" else original
        for at in range(100):
            store = _prepared()
            before = _in_memory(store)
            counted = Counted(original, at)
            is_class = isinstance(where.owner, type)
            with monkeypatch.context() as patch:
                if is_class:
                    patch.setattr(where.owner, where.name, lambda *a, c=counted, **k: c(*a, **k))
                else:
                    patch.setattr(where.owner, where.name, counted)
                try:
                    APPENDS[name](store)
                except Injected:
                    raised += 1
            if not counted.has_raised:
                break
            assert _in_memory(store) == before, where
            if at in (0, 2):
                assert dict(_contents(_go_on(store))) == wanted, where
        else:
            raise AssertionError(f"{where} is called without end")
    assert raised > 5


def test_a_step_that_the_worker_cannot_encode_leaves_the_store_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever shares its write is refused with it, and told so; nothing of either is kept."""
    monkeypatch.setattr(appending, "ENCODED_HERE_MAX", 4)
    wanted = dict(_contents(_go_on(_prepared())))
    parts = StepPart("orders", 0, KEYED), StepPart("orders", 0, KEYED)
    for at in (0, 3, 5):
        store = _prepared()
        before, told = _in_memory(store) | {"rests": {}}, len(store.outcomes)
        counted = Counted(encode_simple_record, at)
        store.append(b"beside")
        with monkeypatch.context() as patch:
            patch.setattr(record_encoding, "encode_simple_record", counted)
            _step(store, *parts)
            store.settle(told + 2)
        assert counted.has_raised
        for error in store.outcomes[told:]:
            assert isinstance(error, SystemBusy)
            assert error.outcome == "not_stored"
        del store.outcomes[told:]
        assert _in_memory(store) == before
        assert dict(_contents(_go_on(store))) == wanted


@pytest.mark.parametrize("flush", FlushMode)
def test_a_large_step_is_what_a_small_one_is(
    flush: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoded by the worker, or on the event loop; also between others, and to a new segment."""
    kept = []
    for encoded_here_max in (0, 1_000):
        monkeypatch.setattr(appending, "ENCODED_HERE_MAX", encoded_here_max)
        store = _prepared()
        told = len(store.outcomes)
        for parts in (
            [
                StepPart("orders", 0, KEYED),
                StepPart("new", 1, RETRIES),
                StepPart("orders", 0, KEYED),
            ],
            [StepPart("orders", 0, MANY[:3]), StepPart("new", 1, KEYED)],
        ):
            store.append(b"before", flush=flush)
            store.store.append_step(parts, flush, store.outcomes.append)
            store.append(b"behind", flush=flush)
        store.settle(told + 6)
        assert store.outcomes[told:] == [None] * 6
        store.store.close()
        kept.append(dict(_contents(store.files)))
    assert kept[0] == kept[1]


LARGER = replace(SMALL, segment_bytes=1 << 18, record_bytes_max=1 << 17)
LONG: dict[str, Callable[[str], Message]] = {
    "sharding key": lambda text: Message(b"x", sharding_key=text),
    "content type": lambda text: Message(b"x", content_type=text),
    "id": lambda text: Message(b"x", message_id=text),
    "tag": lambda text: Message(b"x", tag=text),
    "key": lambda text: Message(b"x", keys=(text,)),
    "property": lambda text: Message(b"x", properties={"name": text}),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("count", [1, 2])
def test_properties_that_no_record_holds_are_refused_whole(name: str, count: int) -> None:
    store = _prepared()
    before = _in_memory(store)
    room = PROPERTIES_BYTES_MAX - len(encode_properties(LONG[name]("")))
    with pytest.raises(PropertiesTooLarge) as refused:
        store.append_all([LONG[name]("k" * (room + 1))] * count)
    assert refused.value.outcome == "not_stored"
    assert refused.value.fields == {"limit_bytes": PROPERTIES_BYTES_MAX}
    assert _in_memory(store) == before
    store.store.close()


def test_the_longest_properties_are_stored_and_read_back() -> None:
    room = PROPERTIES_BYTES_MAX - len(encode_properties(Message(b"", sharding_key="")))
    store = open_store(SimulatedFiles(), LARGER, threads=False)
    store.append_all([Message(b"x", sharding_key="k" * room)])
    store.append_all([Message(b"y", sharding_key="k" * room)] * 2)
    store.settle(2)
    read = store.store.read("orders", 0, 0, max_messages=9, max_bytes=1 << 20, wait_for_disk=True)
    found = [store.store.decode(record) for record in read.records]
    assert [message.body for message in found] == [b"x", b"y", b"y"]
    assert {message.sharding_key for message in found} == {"k" * room}
    store.store.close()


# --- telling what became of appends


def test_one_done_that_raises_keeps_nobody_else_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = open_store(SimulatedFiles(), threads=False)
    told: list[tuple[int, CurlewError | None]] = []
    arrived: list[int] = []
    store.store.on_arrival = lambda _topic, queue_id: arrived.append(queue_id)

    def raising(_error: CurlewError | None) -> None:
        raise Injected

    for number in range(4):
        done = raising if number == 1 else lambda error, n=number: told.append((n, error))
        store.store.append("orders", number, [Message(b"x")], FlushMode.SYNC, done)
    store.turns.run_until(lambda: len(told) == 3)
    assert told == [(0, None), (2, None), (3, None)]
    assert arrived == [0, 1, 2, 3]
    assert store.bodies(queue_id=1) == [b"x"], "it is in the log, whatever its caller makes of it"
    assert store.store.status().pending_bytes == 0
    assert "Injected" in caplog.text
    store.store.close()


def test_a_publication_that_raises_stops_the_store_and_the_next_start_shows_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue would give offsets that are not those of the log: nothing may be taken then."""
    store = open_store(SimulatedFiles(), threads=False)
    store.send(b"before")
    store.append(b"lost sight of")
    store.append(b"behind it")
    store.append(b"elsewhere", queue_id=1)
    (queue,) = [each for each in store.store._queues if each.queue_id == 0]

    def append(_units: bytes) -> None:
        monkeypatch.undo()
        raise Injected

    monkeypatch.setattr(type(queue), "append", lambda _self, units: append(units))
    store.settle(4)
    first, second, third = store.outcomes[1:]
    assert isinstance(first, StoreFailed)
    assert isinstance(second, StoreFailed)
    assert (first.outcome, second.outcome, third) == ("unknown", "unknown", None)
    with pytest.raises(StoreFailed):
        store.append(b"not taken")
    store.store.close()
    reopened = open_store(store.files, threads=False)
    assert reopened.bodies() == [b"before", b"lost sight of", b"behind it"]
    assert reopened.bodies(queue_id=1) == [b"elsewhere"]
    assert reopened.send(b"next").first_queue_offset == 3
    reopened.store.close()


def test_keys_that_cannot_be_indexed_cost_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(SimulatedFiles(), threads=False)
    with monkeypatch.context() as patch:
        patch.setattr(key_index, "PENDING_MAX", 1)
        patch.setattr(key_index, "key_hashes", Counted(len, 0))
        store.append_all(KEYED)
        store.settle(1)
    assert store.outcomes == [None]
    assert store.bodies() == [message.body for message in KEYED]
    store.store.close()
    reopened = open_store(store.files, threads=False)
    found = reopened.store.find_by_key("orders", "k", max_messages=9, wait_for_disk=True)
    assert len(found) == 3, "the start has indexed them again"
    reopened.store.close()
