"""The Python client: its decisions without I/O, its faults against a scripted server, its calls
against a node."""
