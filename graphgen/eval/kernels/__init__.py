"""NumPy rules of kernels: custom calls of the target's compiler, and native kernels by name."""
