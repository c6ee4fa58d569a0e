"""What receives by leases: blocks, workers, and the parts that they are made of."""
