"""The rows that the source gives: names and Spark types. No pyarrow; `columns` builds the data.

`key` is what routes a message, as in Kafka: its sharding key if it has one, otherwise the first of
its keys. `partition` is `queue` by Kafka's name, and `headers` the properties in Kafka's form, for
code that was written for it. Called by `source`.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_curlew.errors import SchemaMismatch


def source_schema(*, include_properties: bool, include_headers: bool = False) -> StructType:
    """The schema of a reader; all columns are nullable, as Spark makes them for a source."""
    columns: list[tuple[str, DataType]] = [
        ("key", BinaryType()),
        ("value", BinaryType()),
        ("topic", StringType()),
        ("queue", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestampType()),
        ("born_timestamp", TimestampType()),
        ("message_id", StringType()),
        ("tag", StringType()),
        ("partition", IntegerType()),
    ]
    if include_properties:
        columns.append(("properties", MapType(StringType(), StringType())))
    if include_headers:
        header = [StructField("key", StringType()), StructField("value", BinaryType())]
        columns.append(("headers", ArrayType(StructType(header))))
    return StructType([StructField(name, kind) for name, kind in columns])


def check_user_schema(given: StructType, expected: StructType) -> None:
    """Refuse a schema given with `.schema(...)` that is not the source's own."""
    if given != expected:
        raise SchemaMismatch(
            f"the source's schema is fixed: {expected.simpleString()}; leave out .schema(...)"
            f" (it asked for {given.simpleString()})"
        )
