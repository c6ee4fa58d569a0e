"""How much may be done in a time: token buckets and bounds. Whose they are, `api.quotas` says."""
