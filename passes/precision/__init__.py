"""Element types of parts of a program: sums, attention, logits. Read reduce_dtype.py first."""
