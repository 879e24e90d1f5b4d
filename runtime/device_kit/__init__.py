"""Kits that people with a Neuron device run: cases, their archive, verdicts, contradictions.

``build_kit.py`` collects the cases, ``kit_archive.py`` writes them with the files of
``runtime/kit_runner``.
"""
