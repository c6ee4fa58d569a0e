"""Finding hooks: those whose names an operator has switched on, among the installed ones."""

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points

from app.broker.hooks.hook_contract import ENTRY_POINTS, Hook
from app.broker.hooks.hooks import NamedHook, UnusableHook
from app.domain.names import nearest


def load_hooks(
    names: Sequence[str], find: Callable[[], Iterable[EntryPoint]] | None = None
) -> list[NamedHook]:
    """The hooks with these names, in this order. Raises `UnusableHook` for one that is not
    installed, that two packages have, or that cannot be made."""
    if not names:
        return []
    installed: dict[str, list[EntryPoint]] = {}
    for each in find() if find is not None else entry_points(group=ENTRY_POINTS):
        installed.setdefault(each.name, []).append(each)
    return [NamedHook(name, _made(name, installed)) for name in names]


def _made(name: str, installed: dict[str, list[EntryPoint]]) -> Hook:
    found = installed.get(name, [])
    if not found:
        close = nearest(name, installed)
        there = ", ".join(sorted(installed)) or "none"
        raise UnusableHook(
            f"no hook {name!r} is installed"
            + (f"; did you mean {close!r}?" if close else "")
            + f" (installed: {there})"
        )
    if len({each.value for each in found}) > 1:
        values = " and ".join(sorted({each.value for each in found}))
        raise UnusableHook(f"two packages have a hook {name!r}: {values}; uninstall one")
    try:
        hook: Hook = found[0].load()()
    except Exception as error:
        raise UnusableHook(
            f"hook {name!r} ({found[0].value}) cannot be made: {type(error).__name__}: {error}"
        ) from error
    return hook
