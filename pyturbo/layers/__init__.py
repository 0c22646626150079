"""What architectures are built from. A layer records operations; it holds weights and no state."""
