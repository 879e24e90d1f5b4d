"""Tests of stages of a pipeline."""
