"""The Spark connector, in Spark: beside what Spark can do at all, and beside another commit."""
