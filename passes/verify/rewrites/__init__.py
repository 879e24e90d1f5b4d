"""Translation validation: each rewrite of a pass checked alone, on boundary values of its own.

Read ``rewrite_checker.py`` first; ``rewrite_window.py`` cuts the ops that it compares.
"""
