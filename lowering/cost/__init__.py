"""Lower bounds of run time from published figures, their picture, a simulated step."""
