"""End-to-end tests: clusters of real processes, driven by clients that are not ours."""
