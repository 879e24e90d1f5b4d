"""Tests of the graphgen package."""
