"""Families with mixtures of experts, one file each. Read mixtral.py first."""
