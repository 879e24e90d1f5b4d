"""Weight preparation as copies: from places in a file to places in a rank's memory."""
