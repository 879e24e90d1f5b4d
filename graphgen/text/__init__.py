"""IR text (``.gg``): printer and parser."""

from __future__ import annotations

from graphgen.text.parser import parse
from graphgen.text.printer import print_function, print_interface, print_module

__all__ = ["parse", "print_function", "print_interface", "print_module"]
