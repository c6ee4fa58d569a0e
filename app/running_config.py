"""Settings that change while a node runs: kept in the metadata, and applied on all its nodes.

A stored value outweighs the default and nothing else: what a node's environment, file or flags say
wins on that node, and its log says so once for each such value. Only `CHANGEABLE` settings are
stored; all others are read at the start. Who uses a setting that may change either reads it from
the shared `Limits` at each use, or listens. Event loop only.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple, Protocol

from app.api.ports import SettingInUse, SettingsPatch
from app.cluster import shown_database
from app.config import LIMIT_PREFIX, NAMES, Config, parsed_setting
from app.domain.changes.conditions import Changed, Terms
from app.domain.errors import IllegalSetting, SettingFixed
from app.domain.limits import CHANGEABLE_LIMITS, ContradictingLimits, Limits
from app.domain.names import nearest

_LOG: Final = logging.getLogger(__name__)

CHANGEABLE: Final = frozenset(
    {
        *("access_log", "auto_create_groups", "auto_create_topics"),
        *("flush_interval_ms", "log_level", "trace_hours"),
        *(LIMIT_PREFIX + name for name in CHANGEABLE_LIMITS),
    }
)
"""Settings that may change while a node runs."""

_ALL: Final = frozenset({*NAMES, *(LIMIT_PREFIX + each.name for each in fields(Limits))})
_STORED: Final = "stored"


class _Stored(Protocol):
    """What is kept for all nodes."""

    @property
    def values(self) -> Mapping[str, str]: ...
    @property
    def version(self) -> int: ...


class _Snapshot(Protocol):
    @property
    def settings(self) -> _Stored: ...


class Keeper(Protocol):
    """What keeps stored settings: the metadata."""

    @property
    def snapshot(self) -> _Snapshot: ...

    async def change_settings(
        self, named: Mapping[str, str | None], terms: Terms | None = None
    ) -> Changed[Any]: ...


class _Merged(NamedTuple):
    """The configuration with stored values; which of those count here."""

    config: Config
    applied: frozenset[str]
    overruled: tuple[str, ...]
    problems: tuple[str, ...]


Listener = Callable[[Config], None]


class RunningConfig:
    """The settings of one node. One per node."""

    def __init__(self, given: Config, limits: Limits, keeper: Keeper) -> None:
        """`limits` are those that everybody has; they change in place."""
        self._given = replace(given, limits=replace(limits))
        self._limits = limits
        self._keeper = keeper
        self._listeners: list[Listener] = []
        self._told: frozenset[str] = frozenset()
        self._version = 0
        self._applied: frozenset[str] = frozenset()
        self.config = self._given
        """As it is now."""
        self.look()

    def listen(self, listener: Listener) -> None:
        """Call it now, and at each change."""
        self._listeners.append(listener)
        listener(self.config)

    def forget(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners.remove(listener)

    @property
    def version(self) -> int:
        """Of what is stored; it rises with each change."""
        return self._keeper.snapshot.settings.version

    def look(self) -> None:
        """Apply what is stored, if it is not what it was."""
        stored = self._keeper.snapshot.settings
        if stored.version == self._version:
            return
        merged = self._merge(stored.values)
        for line in merged.problems:
            if line not in self._told:
                _LOG.warning("%s", line)
        self._told = frozenset(merged.problems)
        self._version, self._applied = stored.version, merged.applied
        self.config = merged.config
        self._limits.take_over(merged.config.limits)
        for listener in self._listeners:
            listener(self.config)

    def _merge(self, stored: Mapping[str, str]) -> _Merged:
        values: dict[str, Any] = {}
        overruled, problems = [], []
        for name, text in sorted(stored.items()):
            source = self._given.sources.get(name)
            if source is not None:
                overruled.append(name)
                problems.append(
                    f"the stored setting {name} = {text} is overruled by the {source}: "
                    f"{_value_in(self._given, name)}"
                )
                continue
            try:
                values[name] = _stored_value(name, text)
            except ValueError as error:
                problems.append(f"the stored setting {name} = {text} is left out: {error}")
        try:
            config = _with(self._given, values)
        except ContradictingLimits as error:
            problems.append(f"stored limits are left out: {error}")
            values = {k: v for k, v in values.items() if not k.startswith(LIMIT_PREFIX)}
            config = _with(self._given, values)
        return _Merged(config, frozenset(values), tuple(overruled), tuple(problems))

    def settings(self) -> list[SettingInUse]:
        """All settings of the node by name, bounds too."""
        return _listed(self.config, self._applied)

    async def change(self, named: Mapping[str, object], terms: Terms) -> SettingsPatch:
        """Store values by name for all nodes of the database, None: no value of ours; and apply
        them here. Raises `IllegalSetting`, `SettingFixed` and `PreconditionFailed`."""
        texts = {name: _text_of(name, value) for name, value in named.items()}
        stored = self._keeper.snapshot.settings.values
        to_be = {**stored, **{name: text for name, text in texts.items() if text is not None}}
        self._check({name: text for name, text in to_be.items() if texts.get(name, "") is not None})
        before = self._merge(stored).config
        changed = await self._keeper.change_settings(texts, terms)
        merged = self._merge(changed.after.values if not terms.is_dry_run else _kept(stored, texts))
        if not terms.is_dry_run:
            self.look()
        moved = {
            name: (_as_json(_value_in(before, name)), _as_json(_value_in(merged.config, name)))
            for name in texts
        }
        return SettingsPatch(
            _listed(merged.config, merged.applied),
            {name: pair for name, pair in moved.items() if pair[0] != pair[1]},
            [name for name in merged.overruled if name in texts],
        )

    def _check(self, stored: Mapping[str, str]) -> None:
        """Raise when the bounds could not hold together on a node that names none itself."""
        values = {name: parsed_setting(name, text) for name, text in stored.items()}
        try:
            _with(self._given, values)
        except ContradictingLimits as error:
            names = [LIMIT_PREFIX + each for each in error.names]
            given = [each for each in names if each in stored]
            raise IllegalSetting(
                f"{' and '.join(names)} contradict each other: {error}",
                hint="change both in one request",
                pointer=f"/{(given or names)[0]}",
            ) from None


def _stored_value(name: str, text: str) -> object:
    """What is stored, perhaps by another version. Raises `ValueError`."""
    if name not in CHANGEABLE:
        raise ValueError("this version cannot change it while it runs")
    return parsed_setting(name, text)


def _listed(config: Config, stored: Collection[str]) -> list[SettingInUse]:
    """All settings by name; the values of `stored` are stored ones."""
    standard, database = Config(), shown_database(config.database)
    return [
        SettingInUse(
            name,
            database if name == "database_url" else _as_json(_value_in(config, name)),
            _as_json(_value_in(standard, name)),
            _STORED if name in stored else config.sources.get(name, "default"),
            name in CHANGEABLE,
        )
        for name in sorted(_ALL)
    ]


def _kept(stored: Mapping[str, str], texts: Mapping[str, str | None]) -> dict[str, str]:
    """What would be stored."""
    return {name: text for name, text in {**stored, **texts}.items() if text is not None}


def _text_of(name: str, value: object) -> str | None:
    """The value as text; raises for a name or a value that cannot be stored."""
    if name not in _ALL:
        match = nearest(name, _ALL)
        raise IllegalSetting(
            f"{name!r} is no setting",
            hint=f"did you mean {match!r}?" if match else "GET /v1/config has all of them",
            pointer=f"/{name}",
        )
    if name not in CHANGEABLE:
        raise SettingFixed(
            f"{name} is read at the start of a node",
            hint="change it in the node's environment, file or flags, and start it again",
            fields={"setting": name},
            pointer=f"/{name}",
        )
    if value is None:
        return None
    standard = _value_in(Config(), name)
    if type(value) is not type(_as_json(standard)):
        wanted = {bool: "true or false", int: "a whole number", str: "text"}[
            type(_as_json(standard))
        ]
        raise IllegalSetting(f"{name} is {value!r}; it must be {wanted}", pointer=f"/{name}")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        parsed_setting(name, text)
    except ValueError as error:
        raise IllegalSetting(f"{name} is {value!r}: {error}", pointer=f"/{name}") from None
    return text


def _with(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with other values. Raises `ContradictingLimits`."""
    limits = {
        name.removeprefix(LIMIT_PREFIX): value
        for name, value in values.items()
        if name.startswith(LIMIT_PREFIX)
    }
    others = {name: value for name, value in values.items() if not name.startswith(LIMIT_PREFIX)}
    return replace(config, **others, limits=replace(config.limits, **limits))


def _value_in(config: Config, name: str) -> object:
    if name.startswith(LIMIT_PREFIX):
        return getattr(config.limits, name.removeprefix(LIMIT_PREFIX))
    return getattr(config, name)


def _as_json(value: object) -> str | int | bool | list[str] | None:
    if isinstance(value, tuple):
        return [str(each) for each in value]
    return value if value is None or isinstance(value, int) else str(value)
