"""Lower bounds of run time from published figures, and their picture."""
