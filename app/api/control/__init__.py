"""The control plane: FastAPI routes."""
