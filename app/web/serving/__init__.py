"""What holds for every page: who reads, how it asks the API, is registered and kept live."""
