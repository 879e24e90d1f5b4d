"""AWS's checks and measurements of applications. Read ``accuracy_checks.py`` first."""
