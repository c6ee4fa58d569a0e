"""A Spark application for an environment that has the wheel and PySpark and nothing else.

Arguments: endpoint, topic. Finds the format by its name, without `register`; prints the values.
"""

import sys

from pyspark.sql import SparkSession


def main() -> None:
    endpoint, topic = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    rows = spark.read.format("curlew").options(endpoint=endpoint, topic=topic).load()
    values = sorted(bytes(row.value).decode() for row in rows.select("value").collect())
    sys.stdout.write(f"read {' '.join(values)}\n")


main()
