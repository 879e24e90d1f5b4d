"""Attributes of StableHLO that no op of the IR models: kept as annotations, and written again.

They have the names that annotations of HLO have wherever HLO says the same, so that a program can
be read from one and written as the other: ``hlo.sharding`` is ``mhlo.sharding``, and Shardy's
``sdy.sharding`` is the frontend attribute ``xla.sdy.sharding``, as in XLA's own conversion. Any
other attribute ``key`` is ``mlir.key``, with its text.
"""
