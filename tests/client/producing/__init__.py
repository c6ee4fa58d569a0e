"""What sends: messages one by one, in batches, in transactions."""
