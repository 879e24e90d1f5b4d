"""Command line: one file a command, flags, tables and the console.

A command is declared by ``COMMAND`` in its module ``*_cmd.py``, which is imported when it runs, and
not by ``graphgen --help`` (:mod:`graphgen.cli.command_table`). No other room imports this one.
"""
