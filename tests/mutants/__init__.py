"""Mutants: small faults put into the packages, to test the tests that belong to a file.

Read ``mutations.py`` first (the faults), then ``belonging_tests.py`` (the tests), ``mutant_run.py``
(one mutant in a forked process) and ``__main__.py`` (a sample of them, resumable).
"""
