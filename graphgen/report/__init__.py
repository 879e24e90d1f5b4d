"""Reports on modules and runs: differences, tables, text, JSON and pages of HTML."""

from __future__ import annotations

from graphgen.json_value import Json
from graphgen.report.html_page import chat_page, explore_page, trace_page

__all__ = ["Json", "chat_page", "explore_page", "trace_page"]
