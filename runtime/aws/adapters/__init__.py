"""Adapters under AWS's names. Read lora_settings.py first."""
