"""Pages about traffic: overview, topics, messages, publishing, live tail, search."""
