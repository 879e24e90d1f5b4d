"""Documents that the server serves: read openapi_document.py and try_page.py."""
