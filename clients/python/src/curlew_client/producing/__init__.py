"""How a producer decides: messages, numbers, retries, nodes, batches. Pure, but for locks."""
