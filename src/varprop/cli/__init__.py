"""The command line. Nothing here may import JAX, NumPy or tables before a command runs."""
