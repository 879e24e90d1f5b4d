"""Miscompiles that validation has to find: one file a kind, each with the same rewrites done right.

A file ``test_<kind>.py`` holds a table ``FAULTS``. A row names the public report that it is
modelled on, where there is one, as owner/repository#number. ``python -m benchmarks.planted`` counts
by kind how many are found, and how often the right rewrite is blamed.
"""
