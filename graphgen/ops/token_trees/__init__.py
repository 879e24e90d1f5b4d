"""The ops of token trees: slots, positions and masks of nodes, and moves of accepted nodes."""
