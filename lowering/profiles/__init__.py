"""Measured times of programs: recordings of profilers, own runs, and bounds beside them."""
