"""The version of this program, as it was installed."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

_UNINSTALLED: Final = "0.1.0"


def program_version() -> str:
    """Its number, for instance 0.1.0."""
    try:
        return version("curlew")
    except PackageNotFoundError:
        return _UNINSTALLED
