"""The settings of a node as JSON."""

from typing import Final, Literal, Self

from pydantic import Field

from app.api.control.schemas.schemas import AnswerModel
from app.api.ports import SettingInUse

Value = str | int | bool | list[str] | None

_UNITS: Final = {
    "_ms": "ms", "_ms_min": "ms", "_ms_max": "ms", "_bytes": "bytes", "_bytes_max": "bytes",
    "_bytes_per_second_min": "bytes/s", "_mib": "MiB", "_seconds_max": "s", "_hours": "h",
}  # fmt: skip
"""End of the name → unit."""


class SettingDocument(AnswerModel):
    """One setting. Its name is that in the file, without `limit_` in the table `[limits]`; in
    capitals behind `CURLEW_` it is that in the environment."""

    name: str = Field(description="The setting", examples=["limit_topics_max"])
    value: Value = Field(description="What the node runs with", examples=[20_000])
    default: Value = Field(description="What it is when nobody sets it", examples=[10_000])
    unit: str | None = Field(description="Of a number that has one", examples=["bytes"])
    source: Literal["default", "environment", "file", "flag"] = Field(
        description="Where the value comes from; a later one of these outweighs those before",
        examples=["file"],
    )
    changeable: bool = Field(
        description="Whether it can be changed while the node runs", examples=[False]
    )
    restart: bool = Field(
        description="Whether a change takes effect with a restart", examples=[True]
    )

    @classmethod
    def of(cls, setting: SettingInUse) -> Self:
        return cls(**setting._asdict(), unit=unit_of(setting.name), changeable=False, restart=True)


class ConfigDocument(AnswerModel):
    """All settings of a node, by name."""

    settings: list[SettingDocument] = Field(description="By name")


def unit_of(name: str) -> str | None:
    """By the end of the name; None for what has no unit."""
    ends = [end for end in _UNITS if name.endswith(end)]
    return _UNITS[max(ends, key=len)] if ends else None
