"""Latency reports: measured by ``benchmark_report.py``, shown by ``benchmark_tables.py``."""
