"""Measure the quality and the speed of attention over compressed keys and values."""
