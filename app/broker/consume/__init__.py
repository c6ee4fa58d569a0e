"""Receiving and settling: messages go out with leases and come back with acks.

`receiver` says how long a lease lasts, `settler` extends it; `leasing` keeps it.
"""
