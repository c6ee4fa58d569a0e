"""Stores that take some of their fast paths: all of them, all but one, none."""

from dataclasses import fields, replace
from typing import Final

from app.store.config import FastPaths, StoreConfig

_NAMES: Final = [field.name for field in fields(FastPaths)]
ALL: Final = FastPaths()
NONE: Final = FastPaths(**dict.fromkeys(_NAMES, False))
WITHOUT_ONE: Final = {f"no {name}": replace(ALL, **{name: False}) for name in _NAMES}
LESS: Final = {**WITHOUT_ONE, "no fast path": NONE}
"""Every way to take fewer than all, by its name in the ids of tests."""


WAYS: Final = {"all fast paths": ALL, **LESS}


class Taken:
    """Which ones the stores of a test take that do not say so themselves."""

    now = ALL


def switched(config: StoreConfig) -> StoreConfig:
    """The configuration with the fast paths that the running test asks for."""
    return replace(config, fast_paths=Taken.now) if config.fast_paths == ALL else config
