"""HostLoop: work of the host in the middle of a replay."""

from pyturbo.errors import StateError


cdef class HostLoop:
    """Brings what launches of a program found to be missing; see ``Program.ask``. Made by the object that does the
    work."""

    def __dealloc__(self):
        with nogil:  # the last owner of a store may wait for threads
            self.handle.reset()

    cdef NativeHostLoop* native(self) except NULL:
        """Return the loop. It is missing in an object that nothing but Python made."""
        if not self.handle:
            raise StateError("the host loop has no work: it is made by the object that does the work")
        return self.handle.get()

    @property
    def missing(self):
        """What the last replay found to be missing."""
        return self.native().missing()[0]
