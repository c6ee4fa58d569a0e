"""Keeps what a Python worker has loaded out of its garbage collections.

Spark's worker daemon collects garbage after every task, and walks through all that pyarrow, numpy
and what a user's functions import have made: ten to forty milliseconds of a small task. `gc.freeze`
is the standard library's way to say that these objects stay. Called by `pulling` and `sending`
after each task.
"""

import gc
import os
import sys
from typing import Final

_modules_frozen: Final[dict[int, int]] = {}
"""How many there were, by process id: a forked worker has its parent's entry and objects of its
own."""


def freeze_loaded() -> None:
    """Collect and freeze, where modules have been loaded in this process since the last time.

    Only then: what is alive as it freezes and becomes garbage later is never collected.
    """
    process, modules = os.getpid(), len(sys.modules)
    if _modules_frozen.get(process) != modules:
        _modules_frozen[process] = modules
        gc.collect()
        gc.freeze()
