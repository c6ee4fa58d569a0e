"""The Python client in a cluster."""
