"""Tests of runtime/quantization."""
