"""Bringing every idea into its one form."""
