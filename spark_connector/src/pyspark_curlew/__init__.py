"""Curlew as a Spark data source: `spark.readStream.format("curlew")`.

Light on purpose: Spark imports every `pyspark_*` package of the environment when it looks for data
sources, so nothing heavy (pyarrow, numpy, urllib3) is loaded before a reader is at work. Called by
Spark's discovery, which looks for `DefaultSource`, and by applications, which may call `register`.
"""

from typing import TYPE_CHECKING

from pyspark_curlew.progress import lag_of
from pyspark_curlew.source import CurlewDataSource
from pyspark_curlew.worker_python import warn_of_other_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CurlewDataSource", "DefaultSource", "lag_of", "register"]


class DefaultSource(CurlewDataSource):
    """The class that Spark's discovery of `pyspark_*` packages looks for."""


def register(spark: "SparkSession") -> None:
    """Make `format("curlew")` known to `spark`. Works where discovery does not (`--py-files`).

    Warns where Spark's Python workers on this machine run outside of this virtual environment.
    """
    warn_of_other_python(spark)
    spark.dataSource.register(CurlewDataSource)
