"""Families that are Llama's decoder with one thing more, one file each. Read granite.py first."""
