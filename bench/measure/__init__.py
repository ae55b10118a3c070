"""What benchmarks and the trace replay share: servers, their counters, load, tables.

Python's standard library only. Linux only: counters come from /proc.
"""
