"""Running a network: recorded programs, the state of conversations, and replies token by token."""
