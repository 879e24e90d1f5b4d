"""Caches whose slots are dealt out over ranks; read stripe_cache.py first."""
