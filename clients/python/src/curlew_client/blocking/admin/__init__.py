# Made from aio/admin/__init__.py by make_blocking.py. Change that, and run it.
"""The control plane: a method for each of its operations, named as the operation is."""
