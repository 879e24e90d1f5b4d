"""Serving of many requests over the rows of one cache: scheduler, engine, kept prefixes."""
