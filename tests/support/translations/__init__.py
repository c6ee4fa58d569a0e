"""The texts of the pages and of the API, and which of them a language has."""
