"""Device, Buffer and Kernel: each owns one native handle. Convenience lives in the plain Python above."""

from cpython.buffer cimport PyBUF_F_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset
from libcpp.memory cimport make_shared, shared_ptr, weak_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.string_view cimport string_view
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from pyturbo._core cimport (
    ArgumentInfo, ArgumentKind, allocate_storage, ConstantInfo, DeviceOptions, device_names, dlpack_capsule, end_process,
    find_device, hold, HostMemory, kBufferAlignment, kDlpackCpu, map_file, mapped_file_at, MappedFile, missing_devices,
    NativeDeviceMemory, NativeTraits, open_device, Precision, Progress, progress_to, require_readable,
)

import atexit
import math
import os
import weakref
from collections.abc import Mapping

import numpy as np

from pyturbo import errors
from pyturbo._arguments import FORMATS, MAX_AXES, callback, code_of_format, counts_of, flag, index, shape_of, value_bytes
from pyturbo._messages import shown
from pyturbo._dtypes import DTYPES, NAMES, bfloat16, code_of
from pyturbo._traits import DeviceMemory, Traits
from pyturbo.errors import ArgumentError

cdef enum:
    VALUE_BYTES = 4096  # of all value arguments of one launch; the limit of Metal's setBytes

assert MAX_AXES == AXES

cdef tuple HOST_MEMORY = ("any", "pages", "none")  # as the native enum numbers them
cdef object FROM_DEVICE = object()  # the key to making a Buffer or a Kernel


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
    """A device that runs kernels: ``"cpu"``, ``"cpu:reference"``, which runs the shaders themselves, or ``"metal"``.

    ``threads`` (default: ``PYTURBO_THREADS``, else one per core) and ``check`` (default: ``PYTURBO_CHECK``)
    hold for the life of the device. So does ``precision`` of activations in products with quantised weights, on a
    device that rounds them: ``"default"`` keeps 24 bits in each group, ``"fast"`` 8.

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
            threads = int(given) if given.isdecimal() and len(given) < 10 else given
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
            raise errors.StateError("the device is not open yet")
        return self.handle.get()

    @property
    def name(self):
        """The name it was opened by: "cpu", "cpu:reference" or "metal"."""
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
        cdef bytes encoded = name.encode(errors="replace")
        kernel = Kernel.__new__(Kernel, FROM_DEVICE)
        kernel.device = self.handle
        kernel.info = &self.handle.get().kernel(string_view(<const char*>encoded, len(encoded)))
        _bind_constants(kernel, dict(constants or {}))
        return self.kernels.setdefault((name, kernel.constant_values) if constants else name, kernel)

    def empty(self, shape, dtype="float32"):
        """Return a new buffer of zeros in this device's memory."""
        _require_open(self)
        cdef int code = code_of(dtype)
        cdef tuple extents = shape_of(shape, DTYPES[code].itemsize)
        cdef uint64_t nbytes = math.prod(extents) * DTYPES[code].itemsize
        cdef shared_ptr[Storage] storage
        with nogil:
            storage = self.handle.get().allocate(nbytes)
        return _at_home(_show(storage, 0, extents, code), self.handle)

    def shared(self, shape, dtype="float32"):
        """Return a new buffer of zeros that kernels of this device and the host can both touch. On a device with memory
        of its own this is host memory, which kernels reach more slowly. ``read``, ``write`` and ``clear`` wait for
        running work; views such as ``numpy()`` do not, so call ``synchronize`` before touching them."""
        _require_open(self)
        cdef int code = code_of(dtype)
        cdef tuple extents = shape_of(shape, DTYPES[code].itemsize)
        cdef uint64_t nbytes = math.prod(extents) * DTYPES[code].itemsize
        cdef shared_ptr[Storage] storage
        with nogil:
            storage = self.handle.get().allocate_shared(nbytes)
        return _at_home(_show(storage, 0, extents, code), self.handle)

    def buffer(self, source):
        """Return a buffer over existing memory, without copying: a NumPy array, anything with the buffer
        protocol or ``__dlpack__``, or a ``Buffer`` itself. The memory stays alive with the buffer. A launch copies host
        memory that the device cannot use in place (``Traits.host_memory``) to the device and back."""
        _require_open(self)
        return _wrap(source)

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
        cdef Buffer copy = _at_home(_show(storage, 0, buffer.shape, <int>buffer.code), self.handle)
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
        cdef bytes encoded = _path_bytes(path)
        cdef string native_path = encoded
        if b"\0" in encoded:
            raise ArgumentError(f"path: expected no zero byte, got {path!r}")
        if shape is not None:
            shape = shape_of(shape, itemsize)
            wanted = math.prod(shape) * itemsize
        with nogil:
            storage = map_file(native_path, begin, wanted)
        if shape is None:
            count, rest = divmod(storage.get().bytes(), itemsize)
            if rest:
                raise errors.FormatError(f"{path}: expected whole elements of {itemsize} bytes, got {rest} bytes more")
            shape = (count,)
        return _show(storage, 0, shape, code)


cdef class ArrayCopy:
    """A copy of an array, or of a part of it, in memory of a device."""


cdef class Buffer:
    """Memory with a shape and an element type.

    Of memory that the host can touch ``numpy()``, ``memoryview(buffer)`` and DLPack are views. A device may have memory
    of its own: of that ``numpy()`` is a copy that cannot be written to, ``memoryview`` is refused, and DLPack is for
    libraries that use the same device. ``read``, ``write`` and ``clear`` work for both.

    Attributes:
        shape: As a tuple.
        nbytes: Bytes of all elements.

    Examples:
        >>> buffer = pyturbo.Device("cpu").empty((2, 3), "float16")
        >>> buffer
        Buffer([2, 3], float16)
        >>> buffer.numpy()[0] = 1
        >>> buffer.view(3).numpy()
        array([1., 1., 1.], dtype=float16)
    """

    def __cinit__(self, key=None):
        if key is not FROM_DEVICE:
            raise TypeError("a Buffer comes from Device.empty, Device.buffer or Device.map")

    @property
    def dtype(self):
        """The NumPy type of an element."""
        return DTYPES[<int>self.code]

    @property
    def readonly(self):
        """Whether kernels and views may only read it."""
        return not self.writable

    def __repr__(self):
        access = "" if self.writable else ", readonly"
        return f"Buffer({list(self.shape)}, {NAMES[<int>self.code]}{access})"

    @property
    def on_host(self):
        """Whether the host can touch the memory."""
        return self.storage.get().on_host()

    cdef int use_on(self, NativeDevice* device) except -1:
        device.use(self.storage.get()[0], self.address - self.storage.get().data(), self.nbytes)
        return 0

    def numpy(self):
        """Return a NumPy view of the same memory, which keeps the buffer alive, or a read-only copy if the host cannot
        touch it. FileError if it is a mapped file that lost a part."""
        if not self.storage.get().on_host():
            copy = self.read()
            copy.flags.writeable = False
            return copy
        require_readable(self.address, self.nbytes)
        array = np.asarray(memoryview(self))
        return array.view(bfloat16) if self.code == DType.bf16 else array

    def __array__(self, dtype=None, copy=None):
        if copy is False and not self.on_host:
            raise ValueError("the buffer is in memory of a device: it has to be copied")
        array = self.numpy()
        return array.copy() if copy and self.on_host else array

    def read(self, out=None):
        """Copy the values to ``out``, a contiguous array of the same shape and type, or to a new array, and return
        it. Waits for the work of the device."""
        if out is None:
            out = np.empty(self.shape, self.dtype)
        elif not isinstance(out, np.ndarray) or out.shape != self.shape or out.dtype != self.dtype \
                or not out.flags.c_contiguous or not out.flags.writeable:
            raise ArgumentError(f"read: out: expected a contiguous, writable array like {self!r}, got {shown(out)}")
        if self.home.get() == NULL:
            _wait(self)
            out[...] = self.numpy()
            return out
        cdef uintptr_t target = out.ctypes.data
        with nogil:
            self.home.get().read(<void*>target, self.address, self.nbytes)
        return out

    def write(self, values):
        """Copy values into the buffer, as an assignment to all of an array does: they may be an array that can be
        broadcast and converted, or another ``Buffer``, which may overlap. Work that was begun sees the old values."""
        cdef Buffer other = values if isinstance(values, Buffer) else None
        cdef uintptr_t source
        if not self.writable:
            raise ArgumentError(f"write: expected a buffer that can be written to, got {self!r}")
        if other is not None:
            _wait(other)
        if self.home.get() == NULL:
            _wait(self)
            self.numpy()[...] = values if other is None else other.numpy()
            return
        if other is not None and other.home.get() == self.home.get() and _is_alike(self, other):
            with nogil:
                self.home.get().copy(self.address, other.address, self.nbytes)
            return
        if other is not None:
            values = other.numpy()
        if not (isinstance(values, np.ndarray) and values.shape == self.shape and values.dtype == self.dtype
                and values.flags.c_contiguous):
            given, values = values, np.empty(self.shape, self.dtype)
            values[...] = given
        source = values.ctypes.data
        with nogil:
            self.home.get().write(self.address, <const void*>source, self.nbytes)
        if other is not None:
            require_readable(other.address, other.nbytes)

    def clear(self):
        """Set all bytes to zero, after the work that was begun."""
        if not self.writable:
            raise ArgumentError(f"clear: expected a buffer that can be written to, got {self!r}")
        _wait(self)
        with nogil:
            if self.home.get() == NULL:
                memset(self.address, 0, self.nbytes)
            else:
                self.home.get().clear(self.address, self.nbytes)

    def view(self, shape, dtype=None, offset=0):
        """Return another buffer over a part of this one, ``offset`` bytes from its start."""
        cdef int code = <int>self.code if dtype is None else code_of(dtype)
        cdef object itemsize = DTYPES[code].itemsize
        cdef tuple extents = shape_of(shape, itemsize)
        nbytes, begin = math.prod(extents) * itemsize, index("offset", offset)
        if begin + nbytes > self.nbytes:
            raise ArgumentError(f"view: expected at most {self.nbytes} bytes, got {nbytes} at offset {begin}")
        if begin % itemsize:
            raise ArgumentError(f"view: expected an offset in whole elements, got {begin} bytes")
        cdef Buffer part = _show(
            self.storage, (self.address - self.storage.get().data()) + <uint64_t>begin, extents, code
        )
        part.writable, part.home, part.user = self.writable, self.home, self.user
        return part

    def __getbuffer__(self, Py_buffer* view, int flags):
        if not self.storage.get().on_host():
            raise BufferError("the buffer is in memory of a device; Buffer.read copies it")
        if flags & PyBUF_WRITABLE and not self.writable:
            raise BufferError("the buffer is read-only")
        if flags & PyBUF_F_CONTIGUOUS == PyBUF_F_CONTIGUOUS and len(self.shape) > 1:
            raise BufferError("the buffer is row-major")
        view.buf = self.address
        view.obj = self
        view.len = self.nbytes
        view.itemsize = DTYPES[<int>self.code].itemsize
        view.readonly = not self.writable
        view.format = <char*>(<bytes>FORMATS[<int>self.code]) if flags & PyBUF_FORMAT else NULL
        view.ndim = len(self.shape)
        view.shape = self.extents
        view.strides = self.strides
        view.suboffsets = NULL
        view.internal = NULL

    def __dlpack_device__(self):
        return _dlpack_device(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        cdef pair[int32_t, int32_t] device = _dlpack_device(self)
        if dl_device is not None and tuple(dl_device) != (device.first, device.second) or copy:
            raise BufferError("a Buffer exports its memory where it is, without copying")
        versioned = max_version is not None and max_version[0] >= 1
        if not self.writable and not versioned:
            raise BufferError("a read-only Buffer needs a consumer of DLPack 1.0")
        if self.home.get() != NULL:
            with nogil:
                self.home.get().synchronize()  # streams of others do not wait for the work of this device
        cdef vector[int64_t] shape = self.shape
        return dlpack_capsule(self, self.address, self.code, shape, device, not self.writable, versioned)


cdef class Kernel:
    """One kernel on one device. Call it with its arguments in the shader's order: buffers or arrays for pointers,
    numbers for scalar values, bytes for structs, None for an argument that a function constant turns off.
    ``groups`` and ``threads`` are needed only where the shader states no Dispatch.

    Examples:
        >>> kernel = pyturbo.Device("cpu").kernel("swiglu")
        >>> kernel
        Kernel('swiglu': gate, up, y, count)
        >>> kernel(np.ones(3, "float32"), np.ones(3, "float32"), np.empty(2, "float32"), 3)
        Traceback (most recent call last):
        ...
        pyturbo.errors.ArgumentError: swiglu: y: expected at least 3 elements of 4 bytes, got 2 (count = 3)
    """

    def __cinit__(self, key=None):
        if key is not FROM_DEVICE:
            raise TypeError("a Kernel comes from Device.kernel")

    @property
    def name(self):
        """The name in the shader, such as "rms_norm_f32"."""
        return self.info.name.decode()

    def __repr__(self):
        return f"Kernel({self.name!r}: {_signature(self)})"

    cdef int launch(self, const Arguments& arguments, const Dispatch* dispatch) except -1 nogil:
        self.device.get().launch(self.info[0], arguments, dispatch)
        return 0

    def __call__(self, *args, groups=None, threads=None):
        self.device.get().require_open()
        cdef Arguments arguments = self.defaults
        cdef unsigned char[VALUE_BYTES + 16] storage
        cdef unsigned char* values = <unsigned char*>((<uintptr_t>&storage[15]) & ~<uintptr_t>15)
        cdef size_t used = 0
        cdef uint32_t i
        cdef Py_ssize_t position = 0, count = len(args)
        cdef const ArgumentInfo* info
        cdef Dispatch dispatch
        cdef const Dispatch* geometry = NULL
        cdef list wrapped = None  # buffers made here; they live until the launch is over

        for i in range(self.info.argument_count):
            info = &self.info.arguments[i]
            if info.kind == ArgumentKind.threadgroup:
                continue
            if position < count:
                arg = args[position]
                if info.kind == ArgumentKind.buffer:
                    if type(arg) is not Buffer and arg is not None:
                        arg = _wrap_argument(self, info, arg)
                        if wrapped is None:
                            wrapped = []
                        wrapped.append(arg)
                    _bind_buffer(self, info, arg, arguments)
                    if arg is not None:
                        (<Buffer>arg).use_on(self.device.get())
                elif arg is not None or info.condition < 0:
                    if used + info.size > VALUE_BYTES:
                        raise ArgumentError(f"{self.name}: expected at most {VALUE_BYTES} bytes of values")
                    _write_value(self, info.name, info.dtype, info.components, info.size, arg, values + used)
                    arguments.buffers[info.index] = values + used
                    arguments.bytes[info.index] = info.size
                    used += (info.size + 15) & ~<size_t>15
            position += 1
        if position != count:
            raise ArgumentError(f"{self.name}: expected {position} arguments ({_signature(self)}), got {count}")
        if groups is not None or threads is not None:
            extent = counts_of(f"{self.name}: groups", groups)
            dispatch.groups.x, dispatch.groups.y, dispatch.groups.z = extent
            extent = counts_of(f"{self.name}: threads", threads)
            dispatch.threads.x, dispatch.threads.y, dispatch.threads.z = extent
            geometry = &dispatch
        with nogil:
            self.launch(arguments, geometry)


def host_empty(shape, dtype="float32"):
    """Return a buffer of zeros in pages of its own, which any device can use."""
    cdef int code = code_of(dtype)
    cdef tuple extents = shape_of(shape, DTYPES[code].itemsize)
    return _show(allocate_storage(math.prod(extents) * DTYPES[code].itemsize), 0, extents, code)


def host_span(array not None):
    """Return a buffer of one axis over the memory of a strided array, from its first value to its last."""
    cdef int code = code_of(array.dtype)
    view = memoryview(array.view(np.uint16) if array.dtype == bfloat16 else array)
    _check_itemsize(view, code)
    if view.nbytes == 0 or any(stride < 0 or stride % view.itemsize for stride in view.strides):
        raise ArgumentError(f"buffer: expected values at increasing addresses, got {view.shape} by {view.strides}")
    last = sum((extent - 1) * stride for extent, stride in zip(view.shape, view.strides))
    return _over(array, view, (last // view.itemsize + 1,), code)


def host_map(int file, path):
    """Map an open file read-only, for any device to use. The path is for messages."""
    cdef string encoded = os.fsencode(path)
    cdef shared_ptr[Storage] storage
    with nogil:
        storage = map_file(file, encoded, 0, -1)
    return _show(storage, 0, (storage.get().bytes(),), <int>DType.u8)


cdef class FileWatch:
    """A check for changes of the mapped file under a buffer. It does not keep the mapping alive."""

    def __cinit__(self, Buffer buffer not None):
        self.file = mapped_file_at(buffer.address)

    def check(self):
        """Raise a FileError if the file is still mapped, and became shorter or was written to."""
        cdef shared_ptr[MappedFile] file = self.file.lock()
        if file.get() != NULL:
            file.get().require_unchanged()


cdef object _traits(const NativeTraits& traits):
    cdef HostMemory host_memory = traits.host_memory
    return Traits(
        traits.chunk, traits.single, traits.attention_blocks, traits.attention_groups,
        traits.chunkwise_tokens, traits.pass_experts, traits.bucket_tokens, traits.top_logits, traits.fused,
        HOST_MEMORY[<int>host_memory],
    )


cdef int _require_open(Device device) except -1:
    device.native().require_open()
    return 0


cdef bytes _path_bytes(path):
    try:
        return os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise ArgumentError(f"path: expected the name of a file, got {path!r}") from None


cdef Buffer _show(const shared_ptr[Storage]& storage, uint64_t offset, tuple shape, int code):
    """Return a Buffer over the storage from `offset` on. The caller has checked that the shape fits."""
    if len(shape) > AXES:
        raise ArgumentError(f"buffer: expected at most {AXES} axes, got {len(shape)}")
    cdef Buffer buffer = Buffer.__new__(Buffer, FROM_DEVICE)
    cdef Py_ssize_t stride = DTYPES[code].itemsize
    cdef Py_ssize_t axis
    buffer.storage = storage
    buffer.address = storage.get().data() + offset
    buffer.writable = storage.get().writable()
    buffer.code = <DType>code
    buffer.shape = shape
    for axis in range(len(shape) - 1, -1, -1):
        buffer.extents[axis] = shape[axis]
        buffer.strides[axis] = stride
        stride *= <Py_ssize_t>shape[axis]
    buffer.nbytes = stride
    return buffer


cdef Buffer _at_home(Buffer buffer, const shared_ptr[NativeDevice]& device):
    """Return a buffer over memory that the device has allocated, which copies to the host if that cannot touch it."""
    if buffer.storage.get().on_host():
        buffer.user = weak_ptr[NativeDevice](device)
    else:
        buffer.home = device
    return buffer


cdef int _wait(Buffer buffer) except -1:
    """Wait for work with memory that the host can touch. The device orders copies of other memory by itself."""
    cdef shared_ptr[NativeDevice] device = buffer.user.lock()
    if device.get() != NULL:
        with nogil:
            device.get().synchronize()
    return 0


cdef cbool _is_alike(Buffer one, Buffer other):
    return one.shape == other.shape and one.code == other.code


cdef pair[int32_t, int32_t] _dlpack_device(Buffer buffer):
    if buffer.home.get() != NULL:
        return buffer.home.get().dlpack_device()
    return pair[int32_t, int32_t](kDlpackCpu, 0)


cdef Buffer _wrap(source):
    """Return a Buffer over `source`'s memory, which it keeps alive."""
    if isinstance(source, Buffer):
        return source
    cdef int code = -1
    if not isinstance(source, np.ndarray) and hasattr(source, "__dlpack__"):
        try:
            source = np.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ArgumentError(f"buffer: expected memory NumPy can view, got {type(source).__name__}: {error}") \
                from None
    if isinstance(source, np.ndarray):
        code = code_of(source.dtype)
        if source.dtype == bfloat16:
            source = source.view(np.uint16)
    try:
        view = memoryview(source)
    except TypeError:
        raise ArgumentError(
            f"buffer: expected an array or an object with the buffer protocol, got {type(source).__name__}"
        ) from None
    except (BufferError, ValueError) as error:
        raise ArgumentError(f"buffer: expected memory that can be viewed, got {type(source).__name__}: {error}") \
            from None
    if not view.c_contiguous:
        raise ArgumentError(f"buffer: expected row-major contiguous memory, got strides {view.strides}")
    if code < 0:
        code = code_of_format(view.format)
    _check_itemsize(view, code)
    return _over(source, view, tuple(view.shape), code)


cdef int _check_itemsize(view, int code) except -1:
    """Check the size of elements: a subclass of ndarray may say anything of itself."""
    if view.itemsize != DTYPES[code].itemsize:
        raise ArgumentError(f"buffer: expected elements of {DTYPES[code].itemsize} bytes, got {view.itemsize}")
    return 0


cdef Buffer _over(source, view, tuple shape, int code):
    """Return a Buffer of that shape over the memory of `source` from its first value on, which `view` shows."""
    cdef uintptr_t address = _address(view)
    cdef uint64_t nbytes = math.prod(shape) * DTYPES[code].itemsize
    cdef Buffer owner = _owner(source)
    cdef Buffer buffer
    if owner is not None and _holds(owner.storage.get()[0], address, nbytes):
        buffer = _show(owner.storage, address - <uintptr_t>owner.storage.get().data(), shape, code)
        buffer.writable, buffer.user = not view.readonly, owner.user
        return buffer
    if nbytes and address % kBufferAlignment:
        raise ArgumentError(
            f"buffer: expected memory aligned to {kBufferAlignment} bytes, got an address "
            f"{address % kBufferAlignment} bytes past; copy it into Device.empty"
        )
    return _show(make_shared[Storage](<void*>address, nbytes, <cbool>(not view.readonly), hold(view)), 0, shape, code)


cdef uintptr_t _address(view) except? 1:
    """Return the address of a memoryview's memory."""
    cdef Py_buffer* held = PyMemoryView_GET_BUFFER(view)
    return <uintptr_t>held.buf


cdef cbool _holds(const Storage& storage, uintptr_t address, uint64_t nbytes) noexcept:
    cdef uintptr_t begin = <uintptr_t>storage.data()
    return begin <= address and address - begin <= storage.bytes() and nbytes <= storage.bytes() - (address - begin)


cdef Buffer _owner(array):
    """Return the Buffer of whose memory an array is a view; None if there is none."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, Buffer) else None


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


cdef Buffer _wrap_argument(Kernel kernel, const ArgumentInfo* info, arg):
    try:
        return _wrap(arg)
    except ArgumentError as error:
        raise ArgumentError(f"{kernel.name}: {info.name.decode()}: {error}") from None


cdef int _bind_buffer(Kernel kernel, const ArgumentInfo* info, Buffer buffer, Arguments& arguments) except -1:
    if buffer is None:
        if info.condition < 0:
            raise ArgumentError(f"{kernel.name}: {info.name.decode()}: expected a buffer, got None")
        return 0
    if buffer.code != info.dtype and info.dtype != DType.raw and buffer.code != DType.raw:
        raise ArgumentError(f"{kernel.name}: {info.name.decode()}: expected {NAMES[<int>info.dtype]} elements, "
                            f"got {NAMES[<int>buffer.code]}")
    if info.writable and not buffer.writable:
        raise ArgumentError(f"{kernel.name}: {info.name.decode()}: expected a writable buffer, got a read-only one")
    arguments.buffers[info.index] = buffer.address
    arguments.bytes[info.index] = buffer.nbytes
    return 0


cdef int _write_value(Kernel kernel, const char* name, DType dtype, uint32_t components, uint32_t size, arg,
                      unsigned char* out) except -1:
    """Store the Python value `arg` as the shader's type. The usual types need no Python objects."""
    cdef bytes encoded
    if components == 1:
        try:
            if dtype == DType.u32:
                (<uint32_t*>out)[0] = PyNumber_Index(arg)
                return 0
            if dtype == DType.i32:
                (<int32_t*>out)[0] = PyNumber_Index(arg)
                return 0
            if dtype == DType.f32:
                (<float*>out)[0] = arg
                return 0
            if dtype == DType.boolean and (arg is True or arg is False):
                out[0] = arg is True
                return 0
        except (TypeError, ValueError, OverflowError):
            pass  # said below
    encoded = value_bytes(f"{kernel.name}: {name.decode()}", <int>dtype, components, size, arg)
    memcpy(out, <const char*>encoded, size)
    return 0


cdef str _signature(Kernel kernel):
    return ", ".join([
        kernel.info.arguments[i].name.decode()
        for i in range(kernel.info.argument_count)
        if kernel.info.arguments[i].kind != ArgumentKind.threadgroup
    ])


cdef int _bind_constants(Kernel kernel, dict constants) except -1:
    """Copy the function constants into one block that the kernel owns: 16 bytes for each value, then a byte for
    each that says whether it is bound. Equal constants make equal blocks."""
    cdef const ConstantInfo* info
    cdef uint32_t i
    cdef uint32_t count = kernel.info.constant_count
    cdef bytes block = bytes(17 * count)
    cdef unsigned char* data = <unsigned char*><char*>block
    cdef set unknown = set(constants)
    for i in range(kernel.info.constant_count):
        info = &kernel.info.constants[i]
        name = info.name.decode()
        if name in constants:
            unknown.discard(name)
            _write_value(kernel, info.name, info.dtype, 1, info.size, constants[name], data + 16 * i)
            kernel.defaults.constants[info.slot] = data + 16 * i
            data[16 * count + i] = 1
        elif info.required:
            raise ArgumentError(f"{kernel.name}: expected a value for function constant {name}, got none")
    if unknown:
        known = ", ".join(kernel.info.constants[i].name.decode() for i in range(kernel.info.constant_count)) or "none"
        raise ArgumentError(
            f"{kernel.name}: constants: expected {known}, got {', '.join(sorted(map(str, unknown)))}"
        )
    kernel.constant_values = block
    return 0


def _end():
    """Close all devices before the interpreter goes; daemon threads that use them are stopped."""
    with nogil:
        end_process()


atexit.register(_end)
