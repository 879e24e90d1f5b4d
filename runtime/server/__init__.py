"""HTTP server with OpenAI's API over :mod:`graphgen.runtime.serving`.

A request goes through ``routes.py`` (its endpoint), ``request_fields.py`` (the fields of its body),
``answer_request.py`` (its meaning), ``engine_thread.py`` (the thread of the engine), and
``answer_json.py`` (the answer).
"""
