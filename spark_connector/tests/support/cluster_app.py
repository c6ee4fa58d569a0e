"""A Spark application for a standalone cluster: copies a topic and counts the copy's rows.

Arguments: endpoint, topic, copy, folder, and options of the sink as name=value.
"""

import sys

from pyspark.sql import SparkSession
from pyspark_curlew import register


def main() -> None:
    endpoint, topic, copy, folder, *given = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    address = {"endpoint": endpoint}
    query = (
        spark.readStream.format("curlew")
        .options(**address, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger="200")
        .load()
        .select("key", "value")
        .writeStream.format("curlew")
        .options(**address, topic=copy, checkpointLocation=f"{folder}/checkpoint")
        .options(**dict(option.split("=") for option in given))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.format("curlew").options(**address, topic=copy).load()
    counts = rows.count(), rows.select("value").distinct().count()
    sys.stdout.write("copied {} {}\n".format(*counts))
    spark.stop()


main()
