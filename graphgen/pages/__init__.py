"""Data of the HTML pages: markup, style and scripts of explorer, trace and chat, and libraries.

Files of one page begin with its name; ``page.css`` and ``elements.js`` belong to all.
:mod:`graphgen.report.html_page` reads them.
"""
