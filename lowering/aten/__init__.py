"""Reader of ``torch.export`` programs: graphs of ATen ops to graphs of the IR.

``program.py`` reads a program, a rule per ATen op has its family's file. torch is imported only to
read a program; the rules of ops do not need it.
"""
