"""What a request may go on with, once its caller may not."""

import pytest
from typing_extensions import override

from app.domain.access.actions import Action, Kind, Target
from app.domain.access.caller import Caller
from app.domain.access.evaluator import UNMENTIONED, Decision
from app.domain.access.refusals import NotPermitted, Unauthorized
from app.domain.access.standing import Standing


class Named(Caller):
    """It may nothing; what it showed counts, or does no more."""

    __slots__ = ("_counts",)
    name = "ann"

    def __init__(self, *, counts: bool) -> None:
        self._counts = counts

    @property
    @override
    def is_live(self) -> bool:
        return self._counts

    @override
    def decide(self, action: Action, target: Target) -> Decision:
        del action, target
        return UNMENTIONED


def test_who_asks_for_more_after_its_key_was_revoked_hears_of_the_key_and_not_of_policies() -> None:
    with pytest.raises(NotPermitted):
        Standing(Named(counts=True)).require(Action.PUB, Kind.PRODUCER, "pg")
    with pytest.raises(Unauthorized, match="revoked"):
        Standing(Named(counts=False)).require(Action.PUB, Kind.PRODUCER, "pg")
