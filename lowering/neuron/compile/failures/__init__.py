"""Failures of the compiler, explained. Start with ``compiler_failure``."""
