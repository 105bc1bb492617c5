"""What a rolling upgrade took from clients: see ./dev upgrade --help."""
