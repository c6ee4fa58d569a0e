"""What an operation of the API is: path, permissions, parameters, body, answers. No handlers."""
