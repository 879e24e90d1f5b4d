"""Reports for people: pages of HTML that hold everything they show."""

from __future__ import annotations

from graphgen.report.html_page import Json, dump_page, trace_page

__all__ = ["Json", "dump_page", "trace_page"]
