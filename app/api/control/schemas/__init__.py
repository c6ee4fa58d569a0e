"""Bodies of the control plane."""
