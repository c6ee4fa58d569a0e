"""A Spark application for a standalone cluster: copies a topic and prints who did the work.

Arguments: endpoint, topic, folder, a time-out in ms, and copies as topic=idempotence.
"""

import os
import sys
from pathlib import Path
from time import monotonic

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark_curlew import register

EXECUTORS_SECONDS = 60


def main() -> None:
    endpoint, topic, folder, timeout_ms, *copies = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    address = {"endpoint": endpoint}
    for copy, idempotence in (each.split("=") for each in copies):
        query = (
            spark.readStream.format("curlew")
            .options(**address, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger="200")
            .load()
            .select("key", "value")
            .writeStream.format("curlew")
            .options(**address, topic=copy, checkpointLocation=f"{folder}/checkpoint-{copy}")
            .options(idempotence=idempotence, readTimeoutMs=timeout_ms)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    sys.stdout.write(f"{len(_executors(spark))} executors\n")
    spark.stop()


def _executors(spark: SparkSession) -> set[str]:
    """Who does work, until there are two or the time is over: one may still be at an attempt that
    was overtaken, and leaves all tasks to the other."""
    found: set[str] = set()
    ends_s = monotonic() + EXECUTORS_SECONDS
    while len(found) < 2 and monotonic() < ends_s:
        found.update(spark.sparkContext.parallelize(range(8), 8).map(_place).collect())
    return found


def _place(_number: int) -> str:
    """The executor's own folder, which tells one from the other on one machine."""
    assert TaskContext.get() is not None
    return os.environ.get("SPARK_EXECUTOR_DIRS", "") or str(Path.cwd())


main()
