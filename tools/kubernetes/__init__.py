"""A real Kubernetes on this machine, in namespaces of its own, and what is tested with it."""
