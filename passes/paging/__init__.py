"""Caches kept in blocks that rows share: :mod:`graphgen.passes.paging.page_cache` first."""
