"""What the end-to-end tests and the tools share: processes, clusters, an NBD client, a writer that checks itself."""
