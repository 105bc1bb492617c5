"""Torment: real nodes in network namespaces, faults one after the other, clients that know what they were promised."""
