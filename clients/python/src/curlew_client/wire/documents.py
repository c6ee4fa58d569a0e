"""JSON documents of the node: read by msgspec if the extra `fast` is installed. Pure."""

import json
from collections.abc import Callable
from typing import Any

loads: Callable[[bytes], Any] = json.loads
"""Raises `ValueError` when it is no JSON."""
try:
    from msgspec.json import decode as _decode

    loads = _decode
except ImportError:
    pass
