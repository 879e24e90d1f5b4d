"""Tests of the passes package."""
