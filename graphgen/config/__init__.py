"""Options of a compilation: their fields, their words, sizes of buckets, ranks.

``compile_config.py`` has the fields that flags, ``default{...}``, the runtime and artifacts follow;
``rank_config.py`` those of ranks. ``fields.py`` declares one.
"""
