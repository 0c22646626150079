"""The parts of architectures. A layer holds weights and records operations; it has no state."""
