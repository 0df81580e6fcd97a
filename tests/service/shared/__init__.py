"""What services share, with real servers, libraries and registries."""
