"""Where rows come from: arrays, Parquet files, Dask frames, behind one contract; their scaling."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "parts": ["split_source"],
        "source": ["AbstractSource", "Data", "Rows", "SourceError"],
        "statistics": ["Scaling", "Statistics"],
        "parquet": ["ParquetSource"],
        "frames": ["DaskSource"],
    },
)
