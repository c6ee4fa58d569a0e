"""What a refusal of a row advises to write, written by Spark: the rows are taken then."""

import re
from typing import TYPE_CHECKING

import pytest

from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.stored import rows_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def header(value: str) -> str:
    return f"array(named_struct('key', 'a', 'value', {value}))"


CASES = {
    "empty key": ("key", "''"),
    "empty key of bytes": ("key", "X''"),
    "key of bytes": ("key", "X'ff'"),
    "empty tag": ("tag", "''"),
    "header without value": ("headers", header("cast(null as binary)")),
    "empty header": ("headers", header("X''")),
    "null header": ("headers", "array(cast(null as struct<key:string,value:binary>))"),
    "header of bytes": ("headers", header("X'ff'")),
    "separator in a header": ("headers", header("X'01'")),
    "reserved header": ("headers", "array(named_struct('key', 'CORRELATION_ID', 'value', X'31'))"),
    "property without value": ("properties", "map('a', cast(null as string))"),
    "empty property": ("properties", "map('a', '')"),
    "property of bytes": ("properties", "map('a', cast(X'ff' as string))"),
    "reserved property": ("properties", "map('CORRELATION_ID', 'c')"),
}


def save(rows: "DataFrame", node: RealNode, topic: str) -> None:
    rows.write.format("curlew").option("endpoint", node.base_url).mode("append").save(topic)


@pytest.mark.parametrize(("column", "value"), CASES.values(), ids=CASES)
def test_what_is_advised_is_taken(
    spark: "SparkSession", real: RealNode, topic: str, column: str, value: str
) -> None:
    real.add_topic(topic, 1)
    rows = spark.range(1).selectExpr("'v' AS value", f"{value} AS {column}")
    with pytest.raises(Exception, match=f"CURLEW_ROW_REFUSED: column '{column}' ") as refused:
        save(rows, real, topic)
    advice = re.search(
        r"write (.+?)(, or put the bytes into 'value')?$", str(refused.value), re.MULTILINE
    )
    assert advice is not None
    assert rows_at(real.base_url, topic) == []
    save(rows.selectExpr("value", f"{advice[1]} AS {column}"), real, topic)
    assert len(rows_at(real.base_url, topic)) == 1
