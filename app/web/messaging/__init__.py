"""Pages about traffic: overview, topics, messages, one message, live tail, search."""
