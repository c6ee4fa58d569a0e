"""Reads options by name: text, numbers, flags, durations, JSON; refuses what is not known.

No Spark, no I/O. Names are compared without regard to case, as Spark does. A name that is not
listed is refused with the nearest one that is: a typing mistake must not silently become a default.
What Spark itself puts beside a user's options is passed over.
Values of secret options are never repeated in a message. Called by the modules that hold options.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from pyspark_curlew.errors import OptionConflict, OptionInvalid, OptionMissing, OptionUnknown
from pyspark_curlew.kafka_names import hint_for

Choice = TypeVar("Choice", bound=str)
"""A word of several."""
HEADER_PREFIX: Final = "headers."
_OF_SPARK: Final = frozenset(
    {
        *("checkpointlocation", "queryname"),
        *("provider", "owner", "external", "location", "comment", "is_managed_location"),
    }
)
"""What Spark's own readers, writers and tables pass on."""
_OF_SPARK_PREFIX: Final = "option."
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionReader:
    """Options by name, with messages that name the option as documented."""

    def __init__(
        self, given: Mapping[str, str], known: Sequence[str], elsewhere: Mapping[str, str] = {}
    ) -> None:
        """`elsewhere`: names that have a meaning in another place, and which place that is."""
        others = {name.lower(): (name, place) for name, place in elsewhere.items()}
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        unknown: list[str] = []
        for name, value in given.items():
            found = names.get(name.lower())
            if found is not None:
                self._values[found] = value
            elif name.lower().startswith(HEADER_PREFIX) and HEADER_PREFIX in known:
                self.headers[name[len(HEADER_PREFIX) :]] = value
            elif name.lower() in others:
                documented, place = others[name.lower()]
                raise OptionConflict(f"option {documented!r} is for {place}")
            elif name.lower() not in _OF_SPARK and not name.lower().startswith(_OF_SPARK_PREFIX):
                unknown.append(name)
        if unknown:
            raise OptionUnknown(_suggestions(unknown, known))

    def given(self, *names: str) -> list[str]:
        """Those of `names` that the user set."""
        return [name for name in names if name in self._values]

    def at_most_one(self, *names: str) -> str | None:
        """The one of `names` that is set; raise `OptionConflict` when there are more."""
        given = self.given(*names)
        if len(given) > 1:
            listed = " and ".join(repr(name) for name in given)
            raise OptionConflict(f"options {listed} exclude each other; give one of them")
        return given[0] if given else None

    def check_use(self, name: str, beside: str, *, is_there: bool) -> None:
        """Raise `OptionConflict` where `name` is set and what gives it a meaning is not there."""
        if name in self._values and not is_there:
            raise OptionConflict(f"option {name!r} means nothing without {beside}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.text_or_none(name)
        value = default if value is None else value
        if value is None:
            raise OptionMissing(f"option {name!r} is required")
        return value

    def text_or_none(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not value.strip():
            raise OptionMissing(f"option {name!r} is required to have a value when it is given")
        return value.strip()

    def choice(self, name: str, default: Choice, *others: Choice) -> Choice:
        value = self.text(name, default)
        allowed = {each.lower(): each for each in (default, *others)}
        if value.lower() not in allowed:
            raise OptionInvalid(f"option {name!r} = {value!r} is not one of {', '.join(allowed)}")
        return allowed[value.lower()]

    def whole(self, name: str, default: int, *, minimum: int, maximum: int = 10**18 - 1) -> int:
        given = self.whole_or_none(name, minimum=minimum)
        if given is not None and given > maximum:
            raise OptionInvalid(f"option {name!r} = {given} is above {maximum}")
        return default if given is None else given

    def whole_or_none(self, name: str, *, minimum: int) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or int(value) < minimum:
            raise OptionInvalid(
                f"option {name!r} = {value!r} is not a whole number of at least {minimum}"
            )
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value.strip().lower() not in {"true", "false"}:
            raise OptionInvalid(f"option {name!r} = {value!r} is neither true nor false")
        return value.strip().lower() == "true"

    def duration_ms(self, name: str, default: int) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        found = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h|d)", value.strip())
        if found is None:
            raise OptionInvalid(
                f"option {name!r} = {value!r} is not a duration like 30s, 15m or 1h"
            )
        return int(found[1]) * _UNIT_MS[found[2]]

    def json_object(self, name: str, like: str) -> dict[str, object]:
        """The value as a JSON object; `like` is an example for the message."""
        value = self.text(name)
        try:
            document = json.loads(value)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not document:
            raise OptionInvalid(f"option {name!r} = {value!r} is not JSON like {like}")
        return document


def _suggestions(unknown: Sequence[str], known: Sequence[str]) -> str:
    """All at once, so that whoever brings options from elsewhere is not told of one after the
    other; what is known is listed once."""
    found = {name: _suggestion(name, known) for name in unknown}
    parts = [f"option {name!r} is not known{hint}" for name, hint in found.items()]
    if not all(found.values()):
        parts.append(f"known are {', '.join(map(_shown, known))}")
    return "; ".join(parts)


def _suggestion(name: str, known: Sequence[str]) -> str:
    hint = hint_for(name)
    if hint is not None:
        return f"; {hint}"
    lowered = {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if nearest:
        return f"; did you mean {_shown(lowered[nearest[0]])!r}?"
    return ""


def _shown(name: str) -> str:
    return f"{name}<name>" if name == HEADER_PREFIX else name
