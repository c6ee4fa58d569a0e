"""A Spark session on this machine, for tests and for the drivers that they kill."""

from pyspark.sql import SparkSession
from pyspark_curlew import register

_ALWAYS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
}


def local_session(master: str, **more: str) -> SparkSession:
    """A session that knows the format; `more` is configuration, with `_` for the dots."""
    builder = SparkSession.builder.master(master)
    given = {name.replace("_", "."): value for name, value in more.items()}
    session = builder.config(map={**_ALWAYS, **given}).getOrCreate()
    register(session)
    return session
