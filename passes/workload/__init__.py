"""Workloads: calls and arrays that programs are compared over, and coverage of their values."""
