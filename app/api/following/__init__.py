"""What a node answers, and has answered by others, while it leads nothing."""
