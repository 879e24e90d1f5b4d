"""Parts of a session's launches. Read row_results.py first."""
