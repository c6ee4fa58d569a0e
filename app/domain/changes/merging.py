"""Changes of settings that name some of them: merged into what is there. Pure.

What is not named stays as it is; of a thing that is made it has its default. Whoever keeps the
settings merges under their lock, into what is there then, so that of two changes at once neither
undoes the other.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final, TypeVar

from app.domain.errors import IllegalSetting
from app.domain.schedules import ScheduleSettings
from app.domain.settings import (
    DEFAULT_MULTIPLIER,
    CustomizedRetry,
    ExponentialRetry,
    GroupSettings,
    RetryPolicy,
    TopicSettings,
)

Settings = TypeVar("Settings", TopicSettings, GroupSettings, ScheduleSettings)


class Reset(Enum):
    """In place of a value."""

    DEFAULT = "default"
    """The setting is what it is in a new thing."""


DEFAULT: Final = Reset.DEFAULT


@dataclass(frozen=True, slots=True)
class RetryPart:
    """Parts of a retry policy, as RFC 7396 has them. One kind that is named ends the other."""

    customized: tuple[int, ...] | Reset | None = None
    """Delays in ms; None: not named."""
    exponential: Mapping[str, int | float | Reset] | Reset | None = None
    """Fields of `ExponentialRetry`."""

    def merged(self, present: object) -> RetryPolicy:
        """Raises `IllegalSetting` when no whole policy comes of it."""
        assert isinstance(present, (CustomizedRetry, ExponentialRetry))
        if isinstance(self.customized, tuple):
            return CustomizedRetry(self.customized)
        if isinstance(self.exponential, Mapping):
            return _exponential(self.exponential, present)
        removed = self.customized if isinstance(present, CustomizedRetry) else self.exponential
        if removed is DEFAULT:
            raise IllegalSetting(
                "a retry policy is one of customized and exponential, and none would be left",
                hint="name the other, or send null for the whole retry_policy",
                pointer="/retry_policy",
            )
        return present


def _exponential(
    named: Mapping[str, int | float | Reset], present: CustomizedRetry | ExponentialRetry
) -> ExponentialRetry:
    values: dict[str, int | float] = {}
    if isinstance(present, ExponentialRetry):
        values = {each.name: getattr(present, each.name) for each in fields(present)}
    for name, value in named.items():
        if isinstance(value, Reset):
            values.pop(name, None)
        else:
            values[name] = value
    for name in ("initial_ms", "max_ms"):
        if name not in values:
            raise IllegalSetting(
                f"an exponential retry policy needs {name.removesuffix('_ms')}",
                pointer=f"/retry_policy/exponential/{name}",
            )
    multiplier = values.get("multiplier", DEFAULT_MULTIPLIER)
    return ExponentialRetry(int(values["initial_ms"]), multiplier, int(values["max_ms"]))


@dataclass(frozen=True, slots=True)
class TextsPart:
    """Some of a setting that is texts by name; `DEFAULT` takes one out."""

    named: Mapping[str, str | Reset]

    def merged(self, present: object) -> Mapping[str, str]:
        values: dict[str, str] = {}
        if isinstance(present, Mapping):
            values.update(present)
        for name, value in self.named.items():
            if isinstance(value, Reset):
                values.pop(name, None)
            else:
                values[name] = value
        return values


@dataclass(frozen=True, slots=True)
class DerivedPart:
    """A value that follows from another setting, unless somebody has chosen one."""

    value: str | None
    derived: AbstractSet[str | None]
    """What is there is one of these when nobody has."""

    def merged(self, present: object) -> object:
        return self.value if present in self.derived else present


Part = RetryPart | TextsPart | DerivedPart

Named = Mapping[str, object]
"""Settings by name: a value, `DEFAULT`, or a part of one (`Part`)."""


def by_name(settings: Settings) -> Named:
    """All of them by name."""
    return {each.name: getattr(settings, each.name) for each in fields(settings)}


def merged(
    kind: type[Settings], named: Named, present: Settings | None, defaults: Named
) -> Settings:
    """What is there with what is named changed; what is made when there is nothing.

    Raises `IllegalSetting` for a setting without a default that is not named, or is to be reset.
    """
    values = dict(defaults if present is None else by_name(present))
    for name, value in named.items():
        if value is DEFAULT and name not in defaults:
            raise IllegalSetting(
                f"{name} has no default", hint=f"leave {name} out to keep it", pointer=f"/{name}"
            )
        if value is DEFAULT:
            values[name] = defaults[name]
        elif isinstance(value, Part):
            values[name] = value.merged(values.get(name))
        else:
            values[name] = value
    for each in fields(kind):
        if each.name not in values:
            raise IllegalSetting(
                f"{each.name} is missing: it does not exist yet, and this has no default",
                pointer=f"/{each.name}",
            )
    return kind(**values)  # type: ignore[arg-type]  # values of fields, under their names


def without_changes(settings: Settings, present: Settings | None, defaults: Named) -> Settings:
    """The same, with the defaults in place of what is as it was before.

    For checks of what a change brings: a bound that was made tighter since then is no reason to
    refuse a change of something else.
    """
    values = by_name(settings)
    if present is not None:
        was = by_name(present)
        values = {n: defaults.get(n, v) if was[n] == v else v for n, v in values.items()}
    return type(settings)(**values)  # type: ignore[arg-type]  # as above
