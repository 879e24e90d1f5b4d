"""Endpoints that load and unload adapters."""
