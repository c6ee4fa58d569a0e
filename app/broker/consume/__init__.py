"""Receiving and settling: messages go out with leases and come back with acks."""
