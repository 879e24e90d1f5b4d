"""The command line; the only part of graphgen that imports passes, lowering and runtime.

Read ``main`` first: :data:`graphgen.cli.main.COMMANDS` is the table of commands, one folder for
each kind of user. ``graphgen --help`` imports no command; a command's module is imported when it
runs.
"""
