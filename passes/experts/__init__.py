"""Mixtures of experts: dispatched forms, blocks of tokens, capacity, costs."""
