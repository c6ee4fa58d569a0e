"""G5, G6: a sample of all flipped bits and moved blocks of a small store.

`make test-crash` tries all.

Nothing is served that was not sent, no record that the damage does not touch is lost, no offset is
given twice; for the log, the state files, and the queue files alike.

Positive controls: a store that does not check, one that cuts the log at the first bad byte, and one
that does not hold queues to the sums in the checkpoint.
"""

from collections.abc import Iterator
from functools import cache
from unittest import mock

import pytest

from app.store import paths
from app.store.log.log_scan import LogScanner
from app.store.queues.unit_checksums import UnitChecksums
from tests.crash.sweeps.flips import Damage, Report, Sample, damages, look, make_sample

SOME = 41
"""Every so many damages are tried; coprime to 8, so that every bit of a byte has its turn."""
OF_QUEUES = 13


@cache
def sample(clean: bool) -> Sample:
    return make_sample(clean=clean)


def is_derived(damage: Damage) -> bool:
    return damage.path.startswith(paths.CONSUME_QUEUES)


def reports(sample: Sample, *, derived: bool, every: int = SOME) -> Iterator[tuple[Damage, Report]]:
    chosen = [damage for damage in damages(sample) if is_derived(damage) == derived]
    for damage in chosen[::every]:
        yield damage, look(sample, damage)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_no_damage_of_log_and_state_costs_more_than_it_touches(clean: bool) -> None:
    count = 0
    for damage, report in reports(sample(clean), derived=False):
        assert report == ([], [], [], []), (damage, report)
        count += 1
    print(f"{count} damages, each noticed, nothing else lost")
    assert count > 1_000


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_damage_of_a_queue_costs_nothing(clean: bool) -> None:
    count = 0
    for damage, report in reports(sample(clean), derived=True, every=OF_QUEUES):
        assert report == ([], [], [], []), (damage, report)
        count += 1
    assert count > 150


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_deleted_queues_and_checkpoint_cost_nothing(clean: bool) -> None:
    hurt = make_sample(clean=clean)
    for path in [*hurt.files.names]:
        if path.startswith((paths.CONSUME_QUEUES, paths.CHECKPOINT)):
            del hurt.files.names[path]
    names = hurt.files.names
    nothing = Damage(paths.META, "zero", len(names[paths.META].seen), len(names[paths.META].seen))
    assert look(hurt, nothing) == ([], [], [], [])


def first_complaint(clean: bool, *, derived: bool = False) -> Report | None:
    for _, report in reports(sample(clean), derived=derived):
        if any(report):
            return report
    return None


def test_a_store_that_does_not_check_is_found_out() -> None:
    with (
        mock.patch("app.store.read.record_checks.check", return_value=""),
        mock.patch("app.store.formats.record.record.check", return_value=""),
    ):
        report = first_complaint(clean=True)
    assert report is not None
    assert report.wrong or report.undetected


def test_a_store_that_cuts_at_the_first_bad_byte_is_found_out() -> None:
    with mock.patch.object(LogScanner, "_next_good", return_value=1 << 40):
        report = first_complaint(clean=False)
    assert report is not None
    assert report.lost


def test_a_store_that_does_not_hold_queues_to_their_sums_is_found_out() -> None:
    with mock.patch.object(UnitChecksums, "unchecked", return_value=iter(())):
        report = first_complaint(clean=True, derived=True)
    assert report is not None
    assert report.lost
