"""Bytes and columns: the batch frame, the records in it, and Arrow's arrays of them."""
