"""The report: one HTML page with everything in it, Markdown, and the plots as SVG files."""

from .build import write

__all__ = ["write"]
