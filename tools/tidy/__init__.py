"""The rules of CONTRIBUTING.md that a machine can keep: `./dev tidy`."""
