"""Members of a group and how queues are divided among them."""
