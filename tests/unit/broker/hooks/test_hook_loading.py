"""Hooks are found by name; what cannot be used is said before the node starts."""

from importlib.metadata import EntryPoint

import pytest

from app.broker.hooks.hook_contract import ENTRY_POINTS
from app.broker.hooks.hook_loading import load_hooks
from app.broker.hooks.hooks import UnusableHook

GOOD = EntryPoint("counter", "collections:Counter", ENTRY_POINTS)
INSTALLED = [
    GOOD,
    EntryPoint("missing", "curlew_nowhere:Hook", ENTRY_POINTS),
    EntryPoint("raising", "builtins:memoryview", ENTRY_POINTS),
    EntryPoint("twice", "a:A", ENTRY_POINTS),
    EntryPoint("twice", "b:B", ENTRY_POINTS),
]


def test_those_that_are_on_are_made_in_their_order() -> None:
    assert load_hooks([]) == []
    [found] = load_hooks(["counter"], lambda: INSTALLED)
    assert (found.name, type(found.hook).__name__) == ("counter", "Counter")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("countr", "did you mean 'counter'.*installed: counter, missing"),
        ("missing", "curlew_nowhere.*cannot be made"),
        ("raising", "cannot be made: TypeError"),
        ("twice", "two packages have a hook 'twice': a:A and b:B"),
    ],
)
def test_what_cannot_be_loaded_is_told(name: str, text: str) -> None:
    with pytest.raises(UnusableHook, match=text):
        load_hooks([name], lambda: INSTALLED)


def test_nothing_installed_is_told() -> None:
    with pytest.raises(UnusableHook, match="installed: none"):
        load_hooks(["x"], list)
