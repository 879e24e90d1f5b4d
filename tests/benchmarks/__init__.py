"""Tests of the benchmark scripts: that they compare like with like."""
