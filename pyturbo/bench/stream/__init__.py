"""Measure models whose experts are read from disk."""
