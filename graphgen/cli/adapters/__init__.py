"""Options about low-rank adapters."""
