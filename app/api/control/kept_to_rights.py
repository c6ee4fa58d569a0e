"""PUT makes a thing or changes it: a caller that may do one of both only is kept to that.

Which of both it is shows in the transaction that does it, so the caller's rights become terms of
the change; that they were not met is told as a refusal, not as what became of the terms.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from app.domain.access.actions import Action, Kind
from app.domain.access.caller import not_permitted, target_of
from app.domain.access.standing import Standing
from app.domain.changes.conditions import Conditions, Terms
from app.domain.errors import NotFound, PreconditionFailed


@contextmanager
def kept_to_rights(access: Standing, kind: Kind, name: str, terms: Terms) -> Iterator[Terms]:
    """The terms on which the caller may put the thing. Within, raises `NotPermitted`."""
    may_make = access.may(Action.CREATE, kind, name)
    may_change = access.may(Action.UPDATE, kind, name)
    if may_make and may_change:
        yield terms
    elif may_make:
        only_make = replace(terms, conditions=Conditions(if_none_match="*"))
        try:
            yield only_make
        except PreconditionFailed as error:
            refusal = not_permitted(access.caller, Action.UPDATE, target_of(kind, name))
            raise refusal from error
    else:
        access.require(Action.UPDATE, kind, name)
        try:
            yield replace(terms, must_exist=True)
        except NotFound as error:
            refusal = not_permitted(access.caller, Action.CREATE, target_of(kind, name))
            raise refusal from error
