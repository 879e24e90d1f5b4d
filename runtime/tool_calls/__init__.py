"""Tool calls and reasoning in the texts of answers: a reader a form, and the choice by template.

Start with :mod:`graphgen.runtime.tool_calls.answer_reader`, then ``call_formats.py``.
"""

from __future__ import annotations
