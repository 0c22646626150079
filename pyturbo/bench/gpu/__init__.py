"""Measure a GPU: kernels, replays, and a model with random weights."""
