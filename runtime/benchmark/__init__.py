"""Latencies of programs and requests, load tests of servers, gains of speculation."""
