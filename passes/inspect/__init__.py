"""Inspection of passes and of their runs. Read ``catalog`` first."""
