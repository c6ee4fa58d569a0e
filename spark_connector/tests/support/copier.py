"""A Spark application: copies topic `orders`, as a driver that tests can kill.

Arguments: endpoint, folder, trigger (`once` ends with what was there, `always` goes on), and more
options of source and sink as JSON. Two queries run: to `copy` with a sink that is idempotent, to
`twice` with one that is not. A copy has another key and tag than the message, the same properties,
and a tenth of the rows is delivered later.
"""

import json
import sys

from spark_connector.tests.support.session import local_session

CHANGED = (
    "concat('x-', cast(key AS string)) AS key",
    "value",
    "'copied' AS tag",
    "properties",
    "CASE WHEN cast(cast(value AS string) AS int) % 10 = 0 THEN 300 ELSE 0 END AS delayMs",
)


def main() -> None:
    endpoint, folder, trigger, *others = sys.argv[1:]
    of_source, of_sink = map(json.loads, others)
    spark = local_session(
        "local[4]", spark_local_dir=f"{folder}/spark", spark_sql_warehouse_dir=f"{folder}/warehouse"
    )
    address = {"endpoint": endpoint, "retryTimeoutMs": "200000"}
    trigger_of = {"once": {"availableNow": True}, "always": {"processingTime": "0 seconds"}}
    queries = [
        spark.readStream.format("curlew")
        .options(**address, topic="orders", startingOffsets="earliest")
        .options(maxOffsetsPerTrigger="1600", includeProperties="true")
        .options(**of_source)
        .load()
        .selectExpr(*CHANGED)
        .writeStream.format("curlew")
        .options(**address, topic=copy, checkpointLocation=f"{folder}/checkpoint-{copy}")
        .options(sendMaxMessages="20", idempotence=idempotence)
        .options(**of_sink)
        .trigger(**trigger_of[trigger])
        .start()
        for copy, idempotence in (("copy", "true"), ("twice", "false"))
    ]
    for query in queries:
        query.awaitTermination()


main()
