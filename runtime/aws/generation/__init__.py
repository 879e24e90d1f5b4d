"""Text generation under AWS's interfaces. Read hf_adapter.py first."""
