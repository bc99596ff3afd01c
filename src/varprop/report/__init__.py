"""Self-contained HTML pages: a model on held-out rows, several methods, published benchmarks.

One file, no network, light and dark, readable on a phone, printable.
Charts are SVG made in Python.
"""

from varprop.report.benchmark import write_benchmark_report
from varprop.report.classes import write_class_report
from varprop.report.comparison import write_comparison_report
from varprop.report.monitor import write_monitor_report
from varprop.report.page import write_report
from varprop.report.survival import write_survival_report

__all__ = [
    "write_benchmark_report",
    "write_class_report",
    "write_comparison_report",
    "write_monitor_report",
    "write_report",
    "write_survival_report",
]
