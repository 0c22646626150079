"""The kernel front end: reads .metal files, writes C++ translation units and the kernel manifest."""
