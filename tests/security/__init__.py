"""The promises of docs/security.md, a module each."""
