"""A year of flights through Curlew and Spark, checked against the data set itself.

An example of the public HTTP API and of the Spark source; not part of the connector's package. Run
by `make demo`, or `python -m flights` with this folder's parent on PYTHONPATH.
"""
