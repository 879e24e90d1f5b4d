"""Element types of parts of a program: attention, softmax, router, logits, sums over ranks."""
