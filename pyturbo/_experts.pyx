"""ExpertStore: experts that are brought into memory when a replay chooses them."""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from pyturbo._host_loop cimport HostLoop
from pyturbo._buffer cimport Buffer

import numpy as np

from pyturbo._arguments import flag, index, path_bytes, real
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError, StateError

COUNTERS = ("requests", "hits", "misses", "guessed", "bytes", "reads", "read_seconds", "wait_seconds")


cdef class ExpertStore:
    """Reads the experts that replays choose into the slots of a slab, and keeps the most used ones there.

    A record is all that belongs to one expert: ``stride`` bytes, a multiple of 4096. Layer ``i`` has the records of
    ``files[i]``, a path and a number of experts. ``slab`` is a uint8 buffer of whole records, which all layers
    share; one slot is enough. ``tables`` is an int32 buffer ``[layers, 5, padded]`` for the rows ``table``,
    ``counts``, ``slots``, ``missing`` and ``guesses`` of each layer; the store fills it, launches of ``find_slots`` read and write it.

    Args:
        threads: How many read at once.
        direct: Read past the page cache where the file system can.
        split: Bytes of one read, a multiple of 4096; 0 reads records whole.
        half_life: Tokens after which a use of an expert counts half. An expert replaces the one with the lowest sum.
        top_k: Experts that a token chooses, by which tokens are counted.
        staging: Slots for experts with a lower sum than all that could be replaced; they are not kept.
        pass_experts: A pass waits for so many experts, or for all that are being read.
    """

    def __cinit__(self, files, stride, Buffer slab, Buffer tables not None, *, threads=8, direct=True, split=1 << 20,
                  half_life=32.0, top_k=1, staging=0, pass_experts=1, _mapped=None):
        cdef ExpertStoreOptions options
        cdef ExpertTables rows
        cdef ExpertSlab slots
        cdef vector[ExpertFile] paths
        cdef vector[MappedExperts] layers
        options.stride = index("ExpertStore: stride", stride, 1)
        options.threads = index("ExpertStore: threads", threads, 1, bits=31)
        options.split = index("ExpertStore: split", split)
        options.direct = flag("ExpertStore: direct", direct)
        options.top_k = index("ExpertStore: top_k", top_k, 1, bits=31)
        options.pass_experts = index("ExpertStore: pass_experts", pass_experts, 1, bits=31)
        options.half_life = real("ExpertStore: half_life", half_life)
        if not options.half_life > 0:
            raise ArgumentError(f"ExpertStore: half_life: expected a number above 0, got {shown(half_life)}")
        options.staging = 0
        count = _read_tables(tables, &rows)
        if _mapped is not None:
            _read_mapped(_mapped, options.stride, &layers)
            _require_layers(layers.size(), count)
            with nogil:
                self.handle = map_expert_store(layers, rows, options)
            return
        _read_slab(slab, options.stride, &slots)
        options.staging = index("ExpertStore: staging", staging, bits=31)
        _read_files(files, &paths)
        _require_layers(paths.size(), count)
        with nogil:
            self.handle = open_expert_store(paths, slots, rows, options)

    @staticmethod
    def mapped(records, stride, tables, *, threads=8, split=1 << 20, pass_experts=1):
        """Return a store over mapped files, each a uint8 buffer of whole records. The slot of an expert is its number;
        several threads make it present before its first use."""
        return ExpertStore.__new__(ExpertStore, (), stride, None, tables, threads=threads, split=split,
                                   pass_experts=pass_experts, _mapped=records)

    cdef NativeExpertStore* native(self) except NULL:
        """Return the store. It is missing in an object that is found while it is being constructed."""
        if not self.handle:
            raise StateError("the expert store is not open yet")
        return self.handle.get()

    def __dealloc__(self):
        with nogil:  # it may wait for threads
            self.handle.reset()

    @property
    def layers(self):
        """Number of layers."""
        return self.native().layers()

    @property
    def direct(self):
        """Whether all files are read past the page cache."""
        cdef NativeExpertStore* store = self.native()
        cdef cbool direct
        with nogil:
            direct = store.direct()
        return direct

    @property
    def closed(self):
        """Whether it refuses all work, as does a store of the parent in a child of ``fork()``."""
        cdef NativeExpertStore* store = self.native()
        cdef cbool closed
        with nogil:
            closed = store.closed()
        return closed

    @property
    def slots(self):
        """Slots in use; 0 for a store over mapped files, and for one that is closed."""
        cdef NativeExpertStore* store = self.native()
        cdef uint32_t slots
        with nogil:
            slots = store.slots()
        return slots

    @property
    def filled(self):
        """Slots that take memory: those that have been read into, apart from memory given back."""
        cdef NativeExpertStore* store = self.native()
        cdef uint32_t filled
        with nogil:
            filled = store.filled()
        return filled

    def check_files(self):
        """Raise a FileError if a file was written to, or became shorter, after it was opened."""
        cdef NativeExpertStore* store = self.native()
        with nogil:
            store.require_unchanged()

    def resize(self, slots, staging=0):
        """Use at most ``slots`` of the slab from now on, ``staging`` of them for experts that are not kept, and give the
        memory of the others back. No program that uses the store may be running."""
        cdef uint32_t staged = index("ExpertStore: staging", staging, bits=31)
        cdef uint32_t wanted = index("ExpertStore: slots", slots, 1, bits=31)
        cdef NativeExpertStore* store = self.native()
        with nogil:
            store.resize(wanted, staged)

    def loop(self, layer, ahead=None):
        """Return the ``HostLoop`` of a layer, which keeps the store alive. When it is asked, it also starts to read the
        experts that the row ``guesses`` of the layer ``ahead`` names."""
        cdef HostLoop loop = HostLoop.__new__(HostLoop)
        cdef int32_t later = -1 if ahead is None else index("ExpertStore: ahead", ahead, bits=31)
        loop.handle = self.native().loop(index("ExpertStore: layer", layer, bits=31), later)
        return loop

    def stats(self):
        """Return the counters of each layer: distinct experts in replays (``requests``), of these ``hits`` that had a
        slot and ``misses``; those read because of a guess (``guessed``); ``bytes`` and ``reads`` (system calls);
        ``read_seconds`` in which records were being read, where a moment with reads of several layers is divided
        among them; ``wait_seconds`` that replays waited."""
        cdef NativeExpertStore* store = self.native()
        cdef vector[ExpertCounters] counters
        with nogil:
            counters = store.counters()
        return [
            dict(zip(COUNTERS, (
                c.requests, c.hits, c.misses, c.guessed, c.bytes, c.reads, c.read_seconds, c.wait_seconds,
            )))
            for c in counters
        ]

    def reset_stats(self):
        """Set all counters to zero."""
        cdef NativeExpertStore* store = self.native()
        with nogil:
            store.reset_counters()

    def trace(self, on=True):
        """Start or end the recording of reads, and return those recorded since the last call: layer, expert, whether it
        was read because of a guess, begin and end in seconds of the clock that ``Program.timeline`` has. A read is
        recorded when it is counted: by the loop that begins or continues after its end."""
        cdef NativeExpertStore* store = self.native()
        cdef cbool recorded = flag("ExpertStore: on", on)
        cdef vector[ExpertRead] reads
        with nogil:
            reads = store.trace(recorded)
        return [(read.layer, read.expert, bool(read.ahead), read.begin, read.end) for read in reads]

    def close(self):
        """End reads and threads, and close the files. Replays that miss an expert afterwards raise a StateError."""
        cdef NativeExpertStore* store = self.native()
        with nogil:
            store.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return f"ExpertStore({self.layers} layers{', closed' if self.closed else ''})"


def time_reads(files, stride, Buffer slab not None, records, *, seconds, threads=8, direct=True, split=0):
    """Measure reads of records, pairs of a layer and an expert, into ``slab``: as many at once as it has room for.

    Returns the seconds of each burst, and whether all reads went past the page cache. Ends after all ``records``, or
    after about ``seconds``. The other arguments are those of ``ExpertStore``.
    """
    cdef ExpertStoreOptions options
    cdef ExpertSlab slots
    cdef ExpertPlace place
    cdef vector[ExpertFile] paths
    cdef vector[ExpertPlace] places
    cdef ExpertBursts bursts
    cdef double limit = real("time_reads: seconds", seconds)
    options.stride = index("time_reads: stride", stride, 1)
    options.threads = index("time_reads: threads", threads, 1, bits=31)
    options.split = index("time_reads: split", split)
    options.direct = flag("time_reads: direct", direct)
    _read_slab(slab, options.stride, &slots)
    _read_files(files, &paths)
    for layer, expert in _pairs("time_reads: records", records):
        place.layer = index("time_reads: layer", layer, bits=31)
        place.expert = index("time_reads: expert", expert, bits=31)
        places.push_back(place)
    with nogil:
        bursts = time_expert_reads(paths, slots, places, options, limit)
    return list(bursts.seconds), bursts.direct


cdef object _read_tables(Buffer tables, ExpertTables* rows):
    """Fill in `rows` and return the number of layers."""
    shape = tables.shape
    if tables.dtype != np.int32 or len(shape) != 3 or shape[1] != kExpertRows or tables.readonly:
        raise ArgumentError(f"ExpertStore: tables: expected writable int32 [layers, {kExpertRows}, padded], got {tables!r}")
    _require_host("tables", tables)
    rows.storage = tables.storage
    rows.rows = <int32_t*>tables.address
    rows.padded = index("ExpertStore: tables: padded", shape[2], 1, bits=31)
    return shape[0]


cdef int _require_host(str what, Buffer buffer) except -1:
    if not buffer.on_host:
        raise ArgumentError(f"ExpertStore: {what}: expected memory of Device.shared, got {buffer!r}, which only the device "
                            "can touch")
    return 0


cdef int _read_slab(Buffer slab, uint64_t stride, ExpertSlab* slots) except -1:
    if slab is None or slab.dtype != np.uint8 or slab.readonly or slab.nbytes < stride or slab.nbytes % stride:
        raise ArgumentError(
            f"ExpertStore: slab: expected a writable uint8 buffer of one or more records of {stride} bytes, got {slab!r}")
    _require_host("slab", slab)
    slots.storage = slab.storage
    slots.data = slab.address
    slots.slots = index("ExpertStore: slots", slab.nbytes // stride, bits=31)
    return 0


cdef int _read_files(files, vector[ExpertFile]* paths) except -1:
    cdef ExpertFile file
    for path, experts in _pairs("ExpertStore: files", files):
        file.path = path_bytes("ExpertStore: files", path)
        file.experts = index("ExpertStore: experts", experts, 1, bits=31)
        paths.push_back(file)
    return 0


cdef int _read_mapped(records, uint64_t stride, vector[MappedExperts]* layers) except -1:
    cdef MappedExperts mapped
    cdef Buffer buffer
    for record in _sequence("ExpertStore: records", records):
        if not isinstance(record, Buffer):
            raise ArgumentError(f"ExpertStore: records: expected buffers, got {shown(record)}")
        buffer = record
        if buffer.dtype != np.uint8 or buffer.nbytes < stride or buffer.nbytes % stride:
            raise ArgumentError(
                f"ExpertStore: records: expected uint8 buffers of one or more records of {stride} bytes, got {buffer!r}")
        _require_host("records", buffer)
        mapped.storage = buffer.storage
        mapped.records = buffer.address
        mapped.experts = index("ExpertStore: experts", buffer.nbytes // stride, bits=31)
        layers.push_back(mapped)
    return 0


cdef list _sequence(str what, given):
    try:
        return list(given)
    except TypeError:
        raise ArgumentError(f"{what}: expected a sequence, got {shown(given)}") from None


cdef list _pairs(str what, given):
    pairs = _sequence(what, given)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f"{what}: expected pairs, got {shown(pair)}")
    return pairs


cdef int _require_layers(size_t found, expected) except -1:
    if found != expected:
        raise ArgumentError(f"ExpertStore: expected files of {expected} layers, as the tables have, got {found}")
    return 0
