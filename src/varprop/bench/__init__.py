"""The benchmark of the paper: its data sets, its protocol, every method run live, its tables."""
