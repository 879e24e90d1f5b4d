"""Tests of the lowering package."""
