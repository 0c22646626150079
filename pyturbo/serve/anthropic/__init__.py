"""The paths of Anthropic's interface."""
