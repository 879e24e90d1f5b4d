"""Cache of compilations: entries, local and shared folders, locks."""
