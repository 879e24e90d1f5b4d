"""Settings of Sphinx for the site of ``make docs``."""

from __future__ import annotations

import re
from typing import Any

from graphgen.version import __version__

project = "graphgen"
author = "the authors of graphgen"
version = release = __version__
html_title = f"graphgen {__version__}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# Links are relative to files, and their anchors are those of GitHub.
myst_heading_anchors = 4
default_role = "code"
highlight_language = "text"
# Two hyphens begin an option.
smartquotes = False
# Terminals and parts of programs are no whole programs.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
autodoc_member_order = "alphabetical"
autodoc_preserve_defaults = True
# The signature on lines of its own where it is long.
maximum_signature_line_length = 90


def setup(app: Any) -> None:
    """Shorten signatures before Sphinx reads them."""
    app.connect("autodoc-process-signature", short_signature)


def short_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returned: str
) -> tuple[str | None, str | None]:
    """Types without their modules; a default that is made at each call is ``...``."""

    def short(text: str | None) -> str | None:
        return text and re.sub(r"~?\b(?:\w+\.)+(?=[A-Z]\w*)", "", text).replace("<factory>", "...")

    return short(signature), short(returned)
