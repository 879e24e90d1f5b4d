"""The version of all four packages; a check for files of another project called graphgen."""

from __future__ import annotations

import os.path

__version__ = "0.1.0"
FOREIGN = (
    "the package 'graphgen' of PyPI is another project (graphs from GPS data) that writes into the "
    "same folder: pip uninstall graphgen graphgen-compiler, then pip install graphgen-compiler"
)


def has_foreign_package() -> bool:
    """True if this folder has files of PyPI's ``graphgen``."""
    return os.path.isfile(os.path.join(os.path.dirname(__file__), "metric", "metric.py"))
