"""The command line; the only part of graphgen that looks up passes, lowering and runtime.

``graphgen --help`` imports no command: :data:`graphgen.cli.main.COMMANDS` names each one, and its
module is imported when it is invoked.
"""
