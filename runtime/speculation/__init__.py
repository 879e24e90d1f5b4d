"""Speculative decoding: proposed tokens are verified in one launch. Read speculator.py first."""
