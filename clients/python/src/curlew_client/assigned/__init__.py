"""Consumers that own queues and read them by offset, over polls; and lite pull.

`records`, `queues`, `share` and `options` are pure.
"""
