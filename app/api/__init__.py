"""The HTTP shell: translates requests into broker calls and results into bytes. Decides nothing."""
