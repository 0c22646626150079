"""What compressing keys and values costs a model in quality, and how long attention to them takes."""
