"""Coverage of validation: programs, branches, inputs and value ranges that a workload reached.

Read ``coverage.py`` first, the data. ``recorder.py`` observes a run, ``input_coverage.py`` reads
the calls of the workload, ``collect.py`` makes a coverage of both; ``coverage_text.py`` and
``coverage_json.py`` print it.
"""
