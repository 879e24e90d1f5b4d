"""KV-cache layouts: paged, rolled (sliding window), flash decoding (striped), padded, in bits."""
