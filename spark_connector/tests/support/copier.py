"""A Spark application: copies topic `orders`, as a driver that tests can kill.

Arguments: endpoint, folder, trigger (`once` ends with what was there, `always` goes on), and more
options of source and sink as JSON. Two queries run: to `copy` with a sink that is idempotent, to
`twice` with one that is not. A copy has another key and tag than the message, the same properties,
and a tenth of the rows is delivered later. With one more argument, `files`, a third query keeps the
messages as they are as Parquet files.
"""

import json
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_connector.tests.support.session import local_session

CHANGED = (
    "concat('x-', cast(key AS string)) AS key",
    "value",
    "'copied' AS tag",
    "properties",
    "CASE WHEN cast(cast(value AS string) AS int) % 10 = 0 THEN 300 ELSE 0 END AS delayMs",
)
TRIGGERS = {"once": {"availableNow": True}, "always": {"processingTime": "0 seconds"}}


def main() -> None:
    endpoint, folder, trigger, of_source, of_sink, *files = sys.argv[1:]
    spark = local_session(
        "local[4]", spark_local_dir=f"{folder}/spark", spark_sql_warehouse_dir=f"{folder}/warehouse"
    )
    address = {"endpoint": endpoint, "retryTimeoutMs": "200000"}
    from_topic = {**address, "topic": "orders", **json.loads(of_source)}
    to_topic = {**address, "sendMaxMessages": "20", **json.loads(of_sink)}
    writers = [
        _orders(spark, from_topic)
        .selectExpr(*CHANGED)
        .writeStream.format("curlew")
        .options(**to_topic, topic=copy, idempotence=idempotence)
        .option("checkpointLocation", f"{folder}/checkpoint-{copy}")
        for copy, idempotence in (("copy", "true"), ("twice", "false"))
    ]
    writers += [
        _orders(spark, from_topic)
        .writeStream.format("parquet")
        .options(path=f"{folder}/{name}", checkpointLocation=f"{folder}/checkpoint-{name}")
        for name in files
    ]
    for query in [writer.trigger(**TRIGGERS[trigger]).start() for writer in writers]:
        query.awaitTermination()


def _orders(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    given = {"maxOffsetsPerTrigger": "1600", "includeProperties": "true", **options}
    return spark.readStream.format("curlew").options(**given, startingOffsets="earliest").load()


main()
