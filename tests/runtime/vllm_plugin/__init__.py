"""Tests of the plugin for vLLM; those of vLLM itself run where it is installed."""
