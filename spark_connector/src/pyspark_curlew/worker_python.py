"""Whether Spark's Python workers run in the environment of the application.

Spark starts them as `PYSPARK_PYTHON`, otherwise as the first `python3` of the PATH, and that is
another one where a virtual environment is used without being activated. All that Spark says then is
`No module named 'pyspark_curlew'`, out of a worker. Called by `register`.
"""

import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def warn_of_other_python(spark: "SparkSession") -> None:
    """Warn where workers on this machine are started outside of this virtual environment.

    What workers on other machines have cannot be seen from here; neither can it with Spark Connect.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or not context.master.startswith("local") or sys.prefix == sys.base_prefix:
        return
    command: str = context.pythonExec
    found = shutil.which(command)
    if found is not None and Path(found).absolute().is_relative_to(sys.prefix):
        return
    warnings.warn(
        f"Spark starts its Python workers as {command!r} ({found or 'not found'}), which is not of"
        f" this environment, {sys.prefix}. If they do not find pyspark_curlew, activate the"
        f" environment or set PYSPARK_PYTHON={sys.executable}, before the session is made.",
        stacklevel=3,
    )
