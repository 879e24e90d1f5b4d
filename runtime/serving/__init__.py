"""Serving of many requests over the rows of one cache. Read serving_engine.py first."""
