"""Self-contained HTML pages: a model on held-out rows, and benchmarks beside published numbers.

One file, no network, light and dark, readable on a phone, printable.
Charts are SVG made in Python.
"""

from varprop.report.benchmark import write_benchmark_report
from varprop.report.page import write_report

__all__ = ["write_benchmark_report", "write_report"]
