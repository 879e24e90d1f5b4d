"""Lowering: programs of the IR to dialects and backends, and foreign programs to the IR.

* Dialects, written and read: ``stablehlo``, ``hlo``. They share ``codec`` (one row per op) and
  ``abi`` (buffer aliases, operation names).
* Frontends, read only: ``aten`` (``torch.export``), ``pyhlo`` (transformers-neuronx), ``traced``
  (user functions), ``neuron`` (files of Neuron's tools). ``open`` recognizes the format of a file.
* Backend: ``cpu`` (XLA through PJRT).
* Estimates, which run nothing: ``cost`` (roofline), ``plan`` (memory and degrees of parallelism),
  ``check`` (refusals of ``neuronx-cc``), ``canonical_hash`` (compilation cache key).

Start with ``stablehlo.emit``, the shortest way from a program to text.
"""
