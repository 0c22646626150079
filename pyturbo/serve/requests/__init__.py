"""What all APIs read of a request: its body, its messages, what a reply may be, and how it is refused."""
