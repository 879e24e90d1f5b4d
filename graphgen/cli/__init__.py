"""Command line: one file a command, flags, tables and the console.

:data:`graphgen.cli.main.COMMANDS` is the table of commands. ``graphgen --help`` imports no command;
the module ``*_cmd.py`` of a command is imported when it runs. No other room imports this one.
"""
