"""The control plane: a method for each of its operations, named as the operation is."""
