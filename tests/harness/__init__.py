"""What the end-to-end tests and the benchmark share: processes, clusters, an NBD client, images."""
