"""Model files and exports: written whole or not at all, read without trust."""
