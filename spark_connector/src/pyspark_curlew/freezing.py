"""Keeps what a Python worker has loaded out of its garbage collections.

Spark's worker daemon collects garbage after every task, and walks through all that pyarrow and
numpy have made at import: ten to forty milliseconds of a small task. `gc.freeze` is the standard
library's way to say that these objects stay. Called by `pulling` and `sending` after their first
task in a process.
"""

import gc
import os

_frozen_in: set[int] = set()
"""Process ids: a forked worker has its parent's entry and objects of its own."""


def freeze_once() -> None:
    """Collect and freeze, in the first call of a process."""
    process = os.getpid()
    if process not in _frozen_in:
        _frozen_in.add(process)
        gc.collect()
        gc.freeze()
