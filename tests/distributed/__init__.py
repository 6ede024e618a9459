"""A package, so that no other of this name is taken for it (Dask has one)."""
