"""Rules of ATen ops, one file a family. Read ``products.py`` first."""
