"""The tests; the folders mirror the four packages."""

import os
import sys

# Processes that tests start, and both workers, compile each module once, whatever the shell says.
# It comes before any import of a plugin of pytest: pytest compiles all modules of those anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
