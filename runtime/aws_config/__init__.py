"""Strict configurations made from the table of attributes. Read strict_config.py first."""
