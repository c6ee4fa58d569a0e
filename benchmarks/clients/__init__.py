"""Rows of the Python client: beside requests written by hand, and beside other brokers' clients."""
