"""Writing files and folders so that there is always something whole under the target's name."""
