"""Quantized weights as stored in checkpoints: the tensors of each scheme and their decoding.

Start at :mod:`graphgen.passes.quantize.stored.scheme`.
:mod:`graphgen.passes.quantize.stored.nibbles` packs and unpacks;
:mod:`graphgen.passes.quantize.stored.read_config` finds the scheme of a ``config.json``, and
:mod:`graphgen.passes.quantize.stored.compressed_formats` the inverse for those that are written.
"""
