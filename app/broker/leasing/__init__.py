"""Queues of a group under lease: leases, retries, order by key, the journal of progress.

`leases` keeps who holds what until when. How long a lease lasts is decided where messages are
given out (`consume.receiver`), and extended where they are settled (`consume.settler`).
`retry_policy` decides what follows a failed delivery: a retry and its delay, or a dead letter.
"""
