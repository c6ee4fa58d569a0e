"""Bytes on disk and on the wire. Pure: values in, bytes out; no I/O, no clock."""
