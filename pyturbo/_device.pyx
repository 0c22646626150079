"""Device: what runs kernels, and where buffers come from."""

from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libcpp.memory cimport shared_ptr, weak_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.string_view cimport string_view

from pyturbo._buffer cimport Buffer, at_home, show, wrap
from pyturbo._core cimport (
    DeviceOptions, device_names, end_process, find_device, HostMemory, map_file, missing_devices, NativeDeviceMemory,
    NativeTraits, open_device, Precision, Progress, progress_to,
)
from pyturbo._kernel cimport find_kernel, Kernel

import atexit
import math
import os
import weakref
from collections.abc import Mapping

import numpy as np

from pyturbo._arguments import callback, flag, index, path_bytes, shape_of
from pyturbo._messages import shown
from pyturbo._dtypes import DTYPES, code_of
from pyturbo._traits import DeviceMemory, Traits
from pyturbo.errors import ArgumentError, FormatError, StateError

cdef tuple HOST_MEMORY = ("any", "pages", "none")  # as the native enum numbers them


def device_list():
    """Return the names that ``Device`` takes, best first.

    Examples:
        >>> {"cpu", "cpu:reference"} <= set(pyturbo.devices())
        True
    """
    return [name.decode() for name in device_names()]


def missing_device_list():
    """Return devices that this machine could have, by name, with what is missing for them."""
    return {device.name.decode(): device.reason.decode() for device in missing_devices()}


def device_traits(str name not None):
    """Return the ``Traits`` of a device that need not be open."""
    cdef bytes encoded = name.encode(errors="replace")
    return _traits(find_device(string_view(<const char*>encoded, len(encoded))).get().traits)


cdef class Device:
    """A device that runs kernels: ``"cpu"``, ``"cpu:reference"`` (the shaders themselves), ``"metal"`` or ``"cuda"``.

    ``threads`` (default: ``PYTURBO_THREADS``, else one per core) and ``check`` (default: ``PYTURBO_CHECK``)
    hold for the life of the device. So does ``precision`` of activations in products with quantised weights, on a
    device that rounds them. On CPUs ``"default"`` keeps 24 bits in each group, ``"fast"`` 8. On NVIDIA
    GPUs they keep 17 and 8 bits of each activation of a prompt; of a step of few tokens both keep 24, or 17 with
    some formats. ``"fast"`` rounds weights of some formats for prompts, too. On Metal ``"fast"`` rounds activations and
    weights of prompts to 8 bits, ``"default"`` nothing.

    Examples:
        >>> device = pyturbo.Device("cpu", threads=1)
        >>> x, y = device.buffer(np.arange(3, dtype="float32")), device.empty(3)
        >>> device.kernel("add")(x, x, y, 3)
        >>> y.numpy()
        array([0., 2., 4.], dtype=float32)
    """

    def __cinit__(self, str name not None="cpu", *, threads=None, check=None, precision="default"):
        cdef DeviceOptions options
        cdef bytes encoded = name.encode(errors="replace")
        if threads is None:
            given = os.environ.get("PYTURBO_THREADS") or "0"
            if not given.isdecimal() or len(given) > 9:
                raise ArgumentError(f"PYTURBO_THREADS: expected an integer from 0 on, got {given!r}")
            threads = int(given)
        if check is not None:
            check = flag("check", check)
        else:
            check = os.environ.get("PYTURBO_CHECK", "").lower() not in ("", "0", "false", "no", "off")
        threads = index("threads", threads)
        if threads > 1024:
            raise ArgumentError(f"threads: expected at most 1024, got {threads}")
        if precision not in ("default", "fast"):
            raise ArgumentError(f"precision: expected 'default' or 'fast', got {precision!r}")
        options.threads = threads
        options.precision = Precision.fast if precision == "fast" else Precision.standard
        options.checked = check
        self.kernels = {}
        self.copies = {}
        self.handle = open_device(string_view(<const char*>encoded, len(encoded)), options)

    cdef NativeDevice* native(self) except NULL:
        """Return the device. It is missing in an object that is found while it is being constructed."""
        if not self.handle:
            raise StateError("the device is not open yet")
        return self.handle.get()

    @property
    def name(self):
        """The name it was opened by, such as "cpu"."""
        return self.native().name().decode()

    @property
    def traits(self):
        """The ``Traits`` of this kind of device: what it is good at."""
        return _traits(self.native().traits())

    @property
    def closed(self):
        """Whether it refuses all work, as does a device of the parent in a child of ``fork()``."""
        return self.native().closed()

    def require_open(self):
        """Raise a StateError that says why, if the device is closed."""
        _require_open(self)

    @property
    def longest_argument(self):
        """Bytes of the longest buffer that a kernel can be given."""
        cdef NativeDevice* device = self.native()
        cdef uint64_t longest
        with nogil:
            longest = device.longest_argument()
        return longest

    @property
    def working_set(self):
        """The most bytes of memory that kernels should use together on a device that shares the host's; None: there is no
        such limit. A model that needs more is refused when it is loaded."""
        cdef NativeDevice* device = self.native()
        cdef uint64_t most
        with nogil:
            most = device.working_set()
        return most or None

    @property
    def memory(self):
        """The ``DeviceMemory`` of a device with memory of its own; None for one that uses that of the host."""
        _require_open(self)
        cdef NativeDevice* device = self.native()
        cdef optional[NativeDeviceMemory] memory
        with nogil:
            memory = device.own_memory()
        return DeviceMemory(memory.value().total, memory.value().free) if memory.has_value() else None

    @property
    def properties(self):
        """Facts about the device, by name."""
        return {name.decode(): value.decode() for name, value in self.native().properties()}

    @property
    def progress(self):
        """A function that is called while launches wait for preparations, with what is prepared, how much of it is done
        and the total: ``"kernels"`` that are compiled, or bytes of ``"weights"`` that are copied to memory of the device.
        It is called from any thread, must not use the device, and cannot end the work by raising an exception. None: nobody
        is told."""
        return self.told

    @progress.setter
    def progress(self, function):
        callback("progress", function)
        cdef NativeDevice* device = self.native()
        cdef Progress progress = progress_to(function)
        with nogil:  # which the function may need to return
            device.set_progress(progress)
        self.told = function

    def close(self):
        """Wait for running work and refuse all further work. Memory that the host can touch stays readable until it is
        dropped. All devices are closed when Python ends."""
        cdef NativeDevice* device = self.native()
        with nogil:
            device.close()

    def synchronize(self):
        """Wait for all work that was started, and raise its errors."""
        cdef NativeDevice* device = self.native()
        with nogil:
            device.synchronize()

    def mark(self):
        """Return a mark, a number, after all work that was started, for ``wait``."""
        cdef NativeDevice* device = self.native()
        cdef uint64_t mark
        with nogil:
            mark = device.mark()
        return mark

    def wait(self, mark):
        """Wait for the work that was started before a mark, perhaps for more, and raise its errors."""
        cdef NativeDevice* device = self.native()
        cdef uint64_t number = index("wait: mark", mark)
        with nogil:
            device.wait(number)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return f"Device({self.name!r}{', closed' if self.closed else ''})"

    def kernel(self, str name not None, constants=None):
        """Return the kernel of that name, with its function constants bound by name. Each is made once."""
        _require_open(self)
        cdef Kernel kernel = None if constants else self.kernels.get(name)
        if kernel is not None:
            return kernel
        if constants is not None and not isinstance(constants, Mapping):
            raise ArgumentError(f"{name}: constants: expected a dict of values by name, got {shown(constants)}")
        kernel = find_kernel(self.handle, name, dict(constants or {}))
        return self.kernels.setdefault((name, kernel.constant_values) if constants else name, kernel)

    def empty(self, shape, dtype="float32"):
        """Return a new buffer of zeros in this device's memory."""
        return _zeros(self, shape, dtype, False)

    def shared(self, shape, dtype="float32"):
        """Return a new buffer of zeros that kernels of this device and the host can both touch. On a device with memory
        of its own this is host memory, which kernels reach more slowly. ``read``, ``write`` and ``clear`` wait for
        running work; views such as ``numpy()`` do not, so call ``synchronize`` before touching them."""
        return _zeros(self, shape, dtype, True)

    def buffer(self, source):
        """Return a buffer over existing memory, without copying: a NumPy array, anything with the buffer
        protocol or ``__dlpack__``, or a ``Buffer`` itself. The memory stays alive with the buffer. A launch copies host
        memory that the device cannot use in place (``Traits.host_memory``) to the device and back."""
        _require_open(self)
        return wrap(source)

    def constant(self, source):
        """Return a buffer with the values of an array that does not change: the array's own memory if the device can
        use it, else a read-only copy, which further calls return for as long as it is in use."""
        cdef Buffer buffer = self.buffer(source)
        cdef uint64_t begin = buffer.address - buffer.storage.get().data()
        cdef tuple key = (<uintptr_t>buffer.address, buffer.nbytes)
        cdef ArrayCopy known = self.copies.get(key)
        cdef shared_ptr[Storage] storage
        root = _root(source)
        if known is not None and root is not None and known.root() is root:
            storage = known.storage.lock()
        if storage.get() == NULL:
            with nogil:
                storage = self.handle.get().constant(buffer.storage, begin, buffer.nbytes)
            if storage.get() == buffer.storage.get():
                return buffer
            if root is not None:
                _remember(self.copies, key, root, storage)
        cdef Buffer copy = at_home(show(storage, 0, buffer.shape, <int>buffer.code), self.handle)
        copy.writable = False
        return copy

    def map(self, path, *, dtype="uint8", shape=None, offset=0):
        """Map part of a file as a read-only buffer. Without ``shape`` it is all of the file from ``offset`` on."""
        _require_open(self)
        cdef int code = code_of(dtype)
        cdef object itemsize = DTYPES[code].itemsize
        cdef uint64_t begin = index("offset", offset)
        cdef int64_t wanted = -1
        cdef shared_ptr[Storage] storage
        cdef string native_path = path_bytes("path", path)
        if shape is not None:
            shape = shape_of(shape, itemsize)
            wanted = math.prod(shape) * itemsize
        with nogil:
            storage = map_file(native_path, begin, wanted)
        if shape is None:
            count, rest = divmod(storage.get().bytes(), itemsize)
            if rest:
                raise FormatError(f"{path}: expected whole elements of {itemsize} bytes, got {rest} bytes more")
            shape = (count,)
        return show(storage, 0, shape, code)


cdef class ArrayCopy:
    """A copy of an array, or of a part of it, in memory of a device."""


cdef object _traits(const NativeTraits& traits):
    cdef HostMemory host_memory = traits.host_memory
    return Traits(
        traits.chunk, traits.single, traits.attention_blocks, traits.attention_groups, traits.product_groups,
        traits.chunkwise_tokens, traits.pass_experts, traits.bucket_tokens, traits.few_tokens, traits.top_logits,
        traits.fused, HOST_MEMORY[<int>host_memory],
    )


cdef int _require_open(Device device) except -1:
    device.native().require_open()
    return 0


cdef Buffer _zeros(Device device, shape, dtype, bint shared):
    _require_open(device)
    cdef int code = code_of(dtype)
    cdef tuple extents = shape_of(shape, DTYPES[code].itemsize)
    cdef uint64_t nbytes = math.prod(extents) * DTYPES[code].itemsize
    cdef NativeDevice* native = device.native()
    cdef shared_ptr[Storage] storage
    with nogil:
        storage = native.allocate_shared(nbytes) if shared else native.allocate(nbytes)
    return at_home(show(storage, 0, extents, code), device.handle)


cdef object _root(source):
    """Return the array that owns the memory of an array; None if it is another object that does."""
    while isinstance(source, np.ndarray) and isinstance(source.base, np.ndarray):
        source = source.base
    return source if isinstance(source, np.ndarray) and source.base is None else None


cdef int _remember(dict copies, tuple key, root, const shared_ptr[Storage]& storage) except -1:
    """Keep a copy of a part of an array in mind until the array is gone."""
    cdef ArrayCopy made = ArrayCopy.__new__(ArrayCopy)

    def forget(reference):
        if copies.get(key) is made:
            del copies[key]

    made.root = weakref.ref(root, forget)
    made.storage = weak_ptr[Storage](storage)
    copies[key] = made
    return 0


def _end():
    """Close all devices before the interpreter goes; daemon threads that use them are stopped."""
    with nogil:
        end_process()


atexit.register(_end)
