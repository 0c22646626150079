"""Writing of files and folders such that the target's name always leads to something complete."""
