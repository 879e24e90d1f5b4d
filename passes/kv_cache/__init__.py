"""Caches kept in blocks that rows share: :mod:`graphgen.passes.kv_cache.page_cache` first."""
