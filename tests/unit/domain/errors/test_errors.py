"""The tree of errors: whole, with a code and a status each."""

import pkgutil
from importlib import import_module

import pytest

from app.api.http.errors import STATUS_OF_CODE
from app.domain import errors
from app.domain.errors import CurlewError

MODULES = [
    import_module(f"{errors.__name__}.{module.name}")
    for module in pkgutil.iter_modules(errors.__path__)
]
KINDS: list[type[CurlewError]] = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, CurlewError)
    and kind.__module__ == module.__name__
]


def test_the_folder_gives_every_error_of_its_modules() -> None:
    assert {kind.__name__ for kind in KINDS} | {"Field", "Outcome"} == set(errors.__all__)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_has_a_status_and_says_what_it_is(kind: type[CurlewError]) -> None:
    assert kind.code in STATUS_OF_CODE
    assert kind.title[0].isupper()
    assert kind.__name__ in (errors.__doc__ or "") or kind.__doc__


def test_no_two_errors_have_one_code_but_a_parent_and_its_child() -> None:
    owners: dict[str, type[CurlewError]] = {}
    for kind in KINDS:
        other = owners.setdefault(kind.code, kind)
        assert issubclass(kind, other) or issubclass(other, kind), (kind, other)
