"""``python -m graphgen``: the command line without its console script."""

from __future__ import annotations

from graphgen.cli.main import main

main()
