"""Figures of what the server does, beside its peers: each measured by a file here, drawn by `plot`."""
