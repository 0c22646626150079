"""What many machines need beside Ray: who has read a prompt, and a request without a network."""
