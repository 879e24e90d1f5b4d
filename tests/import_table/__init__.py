"""The table of imported models in ``docs/importing.md``; ``python -m tests.import_table``."""
