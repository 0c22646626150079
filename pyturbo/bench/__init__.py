"""Measurements: models, GPUs, launches, memory, compressed caches, and other engines in the same run."""
