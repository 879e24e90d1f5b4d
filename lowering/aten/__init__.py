"""Frontend for programs of ``torch.export``: graphs of ATen ops to graphs of the IR.

Read :mod:`~graphgen.lowering.aten.program` first. torch is imported only to read a program; the
rules of ops do not need it.
"""
