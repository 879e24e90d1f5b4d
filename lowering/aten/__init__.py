"""Programs of ``torch.export``: their graphs of ATen ops as graphs of ours.

torch is imported only where a program is read; what each op means is said without it.
"""
