"""What reading is measured against has the columns of the source, or Spark refuses it."""

from pyspark.sql.datasource import InputPartition
from pyspark_curlew.reading.schema import source_schema

from benchmarks.spark.ceilings import ReadyReader


def test_the_bound_has_the_columns_of_the_source() -> None:
    batch = next(iter(ReadyReader(8).read(InputPartition(2))))
    assert batch.schema.names == source_schema(include_properties=False).names
    assert batch.num_rows == 2
