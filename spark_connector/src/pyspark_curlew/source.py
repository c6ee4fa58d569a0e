"""The data source that Spark sees under the name `curlew`.

Imports nothing heavy at the top: Spark loads this module in a planner process of every application
in whose environment the package is. Options are checked in `schema()`, because an error there is
short and shows at `.load()`; later ones come wrapped in a failed query. Called by Spark.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_curlew.options import parse_batch_options, parse_options, parse_stream_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_curlew.reading.batch import CurlewBatchReader
    from pyspark_curlew.reading.stream import CurlewStreamReader
    from pyspark_curlew.writing.sink import CurlewBatchWriter, CurlewStreamWriter


class CurlewDataSource(DataSource):
    """`format("curlew")`, to read and write, as a stream or at once; see the README."""

    @classmethod
    def name(cls) -> str:
        return "curlew"

    def schema(self) -> "StructType":
        from pyspark_curlew.reading.schema import source_schema

        options = parse_options(self.options)
        return source_schema(
            include_properties=options.include_properties, include_headers=options.include_headers
        )

    def reader(self, schema: "StructType") -> "CurlewBatchReader":
        from pyspark_curlew.reading.batch import CurlewBatchReader
        from pyspark_curlew.reading.schema import check_user_schema

        options = parse_batch_options(self.options)
        check_user_schema(schema, self.schema())
        return CurlewBatchReader(options)

    def streamReader(self, schema: "StructType") -> "CurlewStreamReader":  # noqa: N802 - Spark's name
        from pyspark_curlew.reading.schema import check_user_schema
        from pyspark_curlew.reading.stream import CurlewStreamReader

        options = parse_stream_options(self.options)
        check_user_schema(schema, self.schema())
        return CurlewStreamReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> "CurlewBatchWriter":
        from pyspark_curlew.writing.sink import CurlewBatchWriter, check_sink
        from pyspark_curlew.writing.sink_options import parse_sink_options

        options = parse_sink_options(self.options)
        check_sink(options, schema, overwrite=overwrite)
        return CurlewBatchWriter(options)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "CurlewStreamWriter":  # noqa: N802
        from pyspark_curlew.writing.sink import CurlewStreamWriter, check_sink
        from pyspark_curlew.writing.sink_options import parse_sink_options

        options = parse_sink_options(self.options)
        check_sink(options, schema, overwrite=overwrite)
        return CurlewStreamWriter(options)
