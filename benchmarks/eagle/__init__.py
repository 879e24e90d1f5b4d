"""A draft of EAGLE for SmolLM2, trained on this machine and judged by its tokens a step."""
