"""Lowering: programs of the IR to dialects and backends, and foreign programs to the IR.

* Dialects, written and read: ``stablehlo``, ``hlo``. They share ``codec`` (one row per op),
  ``abi`` (buffer aliases, operation names) and ``decompose``; ``hlo_proto`` and ``hlo_text`` are
  the two forms of HLO, ``mlir`` the syntax of StableHLO.
* Frontends, read only: ``aten`` (``torch.export``), ``pyhlo`` (transformers-neuronx),
  ``traced_function`` (user functions). ``open`` recognizes the format of a file.
* Backend: ``cpu`` (XLA through PJRT) with ``cpu_kernels``.
* Neuron: ``neuronx_cc`` (the compiler), ``compile_cache``, ``neuron`` (files of its tools).
* Estimates, which run nothing: ``cost`` (roofline), ``plan`` (memory and degrees of parallelism),
  ``check`` (refusals of ``neuronx-cc``), ``canonical_hash`` (compilation cache key).
"""
