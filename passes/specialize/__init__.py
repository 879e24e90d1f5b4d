"""Binding symbolic sizes."""
