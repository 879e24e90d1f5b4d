"""Load on a server of OpenAI's API; read :mod:`graphgen.runtime.load_test.load_run` first."""
