"""What becomes of messages that were not consumed: retries, dead letters, blocked keys.

Carried out here; decided in `leasing.retry_policy`.
"""
