"""A Spark application: copies one topic to another, as a driver that tests can kill.

Arguments: endpoint, topic, copy, folder, trigger (`once` ends with what was there, `always` goes
on), whether the sink is idempotent, and further options of source and sink as JSON.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark_curlew import register


def main() -> None:
    endpoint, topic, copy, folder, trigger, idempotence, *others = sys.argv[1:]
    of_source, of_sink = map(json.loads, others)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", f"{folder}/spark")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    register(spark)
    rows = (
        spark.readStream.format("curlew")
        .options(endpoint=endpoint, topic=topic, startingOffsets="earliest")
        .options(maxOffsetsPerTrigger="1600", retryTimeoutMs="200000")
        .options(**of_source)
        .load()
    )
    trigger_of = {"once": {"availableNow": True}, "always": {"processingTime": "0 seconds"}}
    query = (
        rows.select("key", "value")
        .writeStream.format("curlew")
        .options(endpoint=endpoint, topic=copy, checkpointLocation=f"{folder}/checkpoint")
        .options(sendMaxMessages="20", retryTimeoutMs="200000", idempotence=idempotence)
        .options(**of_sink)
        .trigger(**trigger_of[trigger])
        .start()
    )
    query.awaitTermination()


main()
