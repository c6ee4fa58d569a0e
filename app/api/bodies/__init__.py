"""Bodies of requests and answers: packing, counting, values in them, what is wrong with them."""
