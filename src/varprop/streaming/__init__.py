"""More data than memory: sources of row blocks, and training on them a buffer at a time."""

from varprop.streaming.engine import fit_stream as fit_stream
from varprop.streaming.frames import DaskSource as DaskSource
from varprop.streaming.parquet import ParquetSource as ParquetSource
from varprop.streaming.source import AbstractSource as AbstractSource
from varprop.streaming.source import SourceError as SourceError
from varprop.streaming.splitting import split_source as split_source
from varprop.streaming.statistics import Statistics as Statistics
