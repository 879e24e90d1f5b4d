"""Data of the HTML pages: markup, style and scripts of the explorer and of a trace, and dagre.

Files of one page begin with its name; ``page.css`` and ``elements.js`` belong to both.
:mod:`graphgen.report.html_page` reads them.
"""
