"""Commands for narrow weights: measure their loss, and write quantized checkpoints."""
