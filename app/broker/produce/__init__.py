"""What a send means: placing, types, requests with replies, acks and sends as one step."""
