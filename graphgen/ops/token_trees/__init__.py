"""The ops of token trees: what their nodes see in a cache, and moves of accepted nodes."""
