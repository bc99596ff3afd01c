"""Where rows come from: arrays, Parquet files, Dask frames, behind one contract."""
