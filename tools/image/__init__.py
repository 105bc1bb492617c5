"""Images for containers: the program, and the program with the tools of the CSI node part."""
