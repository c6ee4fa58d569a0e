"""The settings of a node as JSON."""

from typing import Final, Literal, Self

from pydantic import Field, JsonValue, RootModel, StrictBool, StrictInt, StrictStr

from app.api.control.schemas.schemas import AnswerModel, DryRunMember
from app.api.ports import Configuration, SettingInUse, SettingsPatch, SettingValue

_UNITS: Final = {
    "_ms": "ms", "_ms_min": "ms", "_ms_max": "ms", "_bytes": "bytes", "_bytes_max": "bytes",
    "_bytes_per_second_min": "bytes/s", "_mib": "MiB", "_seconds_max": "s", "_hours": "h",
}  # fmt: skip
"""End of the name → unit."""


class SettingDocument(AnswerModel):
    """One setting. Its name is that in the file, without `limit_` in the table `[limits]`; in
    capitals behind `CURLEW_` it is that in the environment."""

    name: str = Field(description="The setting", examples=["limit_topics_max"])
    value: JsonValue = Field(description="What the node runs with", examples=[20_000])
    default: JsonValue = Field(description="What it is when nobody sets it", examples=[10_000])
    unit: str | None = Field(description="Of a number that has one", examples=["bytes"])
    source: Literal["default", "stored", "environment", "file", "flag"] = Field(
        description="Where the value comes from; a later one of these outweighs those before. "
        "stored: by `PATCH /v1/config`",
        examples=["file"],
    )
    changeable: bool = Field(
        description="Whether `PATCH /v1/config` can change it while nodes run", examples=[True]
    )
    restart: bool = Field(
        description="Whether a change takes effect with a restart only", examples=[False]
    )

    @classmethod
    def of(cls, setting: SettingInUse) -> Self:
        return cls(**setting._asdict(), unit=unit_of(setting.name), restart=not setting.changeable)


def _both(pair: tuple[SettingValue, SettingValue]) -> list[JsonValue]:
    """Before and after; lists of texts as JSON has them."""
    return [[*value] if isinstance(value, list) else value for value in pair]


class ConfigDocument(AnswerModel):
    """All settings of a node, by name."""

    settings: list[SettingDocument] = Field(description="By name")
    version: int = Field(
        description="Of the stored settings; it rises with each change, and is the ETag",
        examples=[7],
    )

    @classmethod
    def of(cls, configuration: Configuration) -> Self:
        settings = [SettingDocument.of(each) for each in configuration.settings()]
        return cls(settings=settings, version=configuration.version)


class ConfigPatch(RootModel[dict[str, StrictStr | StrictInt | StrictBool | None]]):
    """Settings to change while nodes run, by name, as a JSON merge patch (RFC 7396). null: no
    stored value, so that the default counts again."""


class ConfigChange(DryRunMember, ConfigDocument):
    """All settings after a change; with `dry_run`, as they would be."""

    changed: dict[str, list[JsonValue]] = Field(
        description="Settings whose value on this node is another one: before and after",
        examples=[{"log_level": ["info", "debug"]}],
    )
    overruled: list[str] = Field(
        description="Named settings that are stored and do not count on this node: its "
        "environment, file or flags say something else",
        examples=[[]],
    )

    @classmethod
    def of_patch(
        cls, configuration: Configuration, patch: SettingsPatch, *, is_dry_run: bool
    ) -> Self:
        return cls(
            settings=[SettingDocument.of(each) for each in patch.settings],
            version=configuration.version,
            changed={name: _both(pair) for name, pair in patch.changed.items()},
            overruled=patch.overruled,
            dry_run=is_dry_run,
        )


def unit_of(name: str) -> str | None:
    """By the end of the name; None for what has no unit."""
    ends = [end for end in _UNITS if name.endswith(end)]
    return _UNITS[max(ends, key=len)] if ends else None
