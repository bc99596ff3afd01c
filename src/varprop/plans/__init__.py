"""A fitted model as a plan: flat steps and plain arrays, which NumPy runs and exports write out."""
