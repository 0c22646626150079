"""The paths of OpenAI's interface."""
