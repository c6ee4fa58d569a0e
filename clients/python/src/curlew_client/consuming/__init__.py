"""Consumers by lease: messages, what is decided about them, leases, loops and workers.

`messages`, `decisions`, `leases`, `taken`, `handlers` and `flow` are pure.
"""
