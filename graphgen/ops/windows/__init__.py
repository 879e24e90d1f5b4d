"""Ops that move a window over their operand: convolutions and the reductions of windows."""
