"""The store on a disk that forgets: thousands of crash states, drawn by seed.

Promises: G1 (a killed process loses nothing acknowledged), G2 (neither does a power loss, for what
was sent with a sync), G5 (no other bytes are ever read), G8 (an offset names the same bytes for
ever). The positive control is a disk that lies about syncs; it must be found out.
"""

import random
from dataclasses import dataclass, field

import pytest

from app.domain.positions import FlushMode
from tests.support.simulated_files import SimulatedFiles
from tests.support.stores import OpenStore, open_store

SEEDS = range(150)
LIVES = 6


@dataclass
class Expectation:
    """What was acknowledged, by (queue, offset)."""

    safe: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Survives a power loss."""
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Acknowledged in async mode; survives a kill."""


class Broken(AssertionError):
    """A promise was not kept."""


def live(opened: OpenStore, chance: random.Random, expected: Expectation) -> None:
    """Send, checkpoint and flush at random, then leave something unfinished."""
    for _ in range(chance.randint(1, 12)):
        action = chance.randrange(10)
        if action == 0:
            opened.store.begin_checkpoint().run()
        elif action == 1:
            opened.store.flush(opened.outcomes.append)
            opened.settle()
            expected.safe |= expected.written
        else:
            send(opened, chance, expected)
    for _ in range(chance.randint(0, 3)):
        opened.append(chance.randbytes(chance.randint(0, 700)), queue_id=chance.randrange(3))
    if chance.randrange(2):
        opened.turns.run()


def send(opened: OpenStore, chance: random.Random, expected: Expectation) -> None:
    flush = chance.choice(list(FlushMode))
    sent = []
    for _ in range(chance.randint(1, 5)):
        queue_id, body = chance.randrange(3), chance.randbytes(chance.randint(0, 700))
        appended = opened.append(body, queue_id=queue_id, flush=flush)
        sent.append(((queue_id, appended.first_queue_offset), body))
    opened.settle(len(opened.outcomes) + len(sent))
    assert opened.outcomes[-len(sent) :] == [None] * len(sent)
    (expected.safe if flush is FlushMode.SYNC else expected.written).update(sent)
    if flush is FlushMode.SYNC:
        expected.safe |= expected.written


def check(
    opened: OpenStore, expected: dict[tuple[int, int], bytes], seen: dict[tuple[int, int], bytes]
) -> None:
    """Everything expected is there, and nothing that was ever read has changed."""
    for queue_id in range(3):
        first = opened.store.bounds("orders", queue_id).min_offset
        bodies = opened.bodies(queue_id=queue_id)
        for (queue, offset), body in expected.items():
            if queue == queue_id and (
                offset - first >= len(bodies) or bodies[offset - first] != body
            ):
                raise Broken(f"queue {queue} offset {offset} lost")
        for offset, body in enumerate(bodies, first):
            if seen.get((queue_id, offset), body) != body:
                raise Broken(f"queue {queue_id} offset {offset} changed")


def lives(seed: int, *, power_loss: bool, skip_sync: bool = False) -> int:
    """Play several lives of one store; the number of crash states that were checked."""
    chance = random.Random(seed)
    files = SimulatedFiles(skip_sync=skip_sync)
    expected = Expectation()
    for _ in range(LIVES):
        opened = open_store(files)
        survivors = expected.safe if power_loss else expected.safe | expected.written
        check(opened, survivors, expected.safe)
        expected.written = {} if power_loss else expected.written
        live(opened, chance, expected)
        files = files.crash(chance) if power_loss else files.kill()
        opened.store.fail("the machine is gone")
        opened.store.close()
        if skip_sync:
            files._skip_sync = True
    return LIVES


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_loses_nothing_that_was_synced(seed: int) -> None:
    assert lives(seed, power_loss=True) == LIVES


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_loses_nothing_that_was_acknowledged(seed: int) -> None:
    assert lives(seed, power_loss=False) == LIVES


def test_a_disk_that_lies_about_syncs_is_found_out() -> None:
    found = 0
    for seed in range(30):
        try:
            lives(seed, power_loss=True, skip_sync=True)
        except Exception:  # noqa: BLE001 - any way of noticing will do
            found += 1
    assert found > 20
