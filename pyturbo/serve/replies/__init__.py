"""What all APIs write of a reply: what becomes known of it, its blocks, what it took, and events."""
