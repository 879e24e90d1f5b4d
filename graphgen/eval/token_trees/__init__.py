"""NumPy rules of the ops of token trees."""
