"""Queues of a group under lease: leases, order by key, the journal of progress."""
