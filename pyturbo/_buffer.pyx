"""Buffer: memory with a shape and an element type, of a device or over memory that exists."""

from cpython.buffer cimport PyBUF_F_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.string cimport memset
from libcpp.memory cimport make_shared, shared_ptr, weak_ptr
from libcpp.string cimport string
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from pyturbo._core cimport (
    allocate_storage, dlpack_capsule, hold, kBufferAlignment, kDlpackCpu, map_file, mapped_file_at, require_readable,
)

import math
import os

import numpy as np

from pyturbo._arguments import FORMATS, MAX_AXES, code_of_format, index, shape_of
from pyturbo._messages import shown
from pyturbo._dtypes import DTYPES, NAMES, bfloat16, code_of
from pyturbo.errors import ArgumentError

assert MAX_AXES == AXES

cdef object FROM_DEVICE = object()  # the key to making a Buffer


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

    def __dealloc__(self):
        if self.storage.get() != NULL and not self.storage.get().on_host():
            with nogil:  # a GPU may have to end its work first
                self.storage.reset()

    def numpy(self):
        """Return a NumPy view of the same memory, which keeps the buffer alive, or a read-only copy if the host cannot
        touch it. FileError if it is a mapped file that lost a part."""
        if not self.storage.get().on_host():
            copy = self.read()
            copy.flags.writeable = False
            return copy
        require_readable(self.address, self.nbytes)
        if self.code == DType.bf16:  # of which the buffer protocol knows nothing
            return np.asarray(memoryview(self.view(self.shape, "uint16"))).view(bfloat16)
        return np.asarray(memoryview(self))

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
        cdef Buffer part = show(
            self.storage, (self.address - self.storage.get().data()) + <uint64_t>begin, extents, code
        )
        part.writable, part.home, part.user = self.writable, self.home, self.user
        return part

    def __getbuffer__(self, Py_buffer* view, int flags):
        if not self.storage.get().on_host():
            raise BufferError("the buffer is in memory of a device; Buffer.read copies it")
        if flags & PyBUF_WRITABLE and not self.writable:
            raise BufferError("the buffer is read-only")
        if flags & PyBUF_FORMAT and self.code == DType.bf16:
            raise BufferError("the buffer protocol has no bfloat16; Buffer.numpy has")
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


def host_empty(shape, dtype="float32"):
    """Return a buffer of zeros in pages of its own, which any device can use."""
    cdef int code = code_of(dtype)
    cdef tuple extents = shape_of(shape, DTYPES[code].itemsize)
    return show(allocate_storage(math.prod(extents) * DTYPES[code].itemsize), 0, extents, code)


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
    return show(storage, 0, (storage.get().bytes(),), <int>DType.u8)


cdef class FileWatch:
    """A check for changes of the mapped file under a buffer. It does not keep the mapping alive."""

    def __cinit__(self, Buffer buffer not None):
        self.file = mapped_file_at(buffer.address)

    def check(self):
        """Raise a FileError if the file is still mapped, and became shorter or was written to."""
        cdef shared_ptr[MappedFile] file = self.file.lock()
        if file.get() != NULL:
            file.get().require_unchanged()


cdef Buffer show(const shared_ptr[Storage]& storage, uint64_t offset, tuple shape, int code):
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


cdef Buffer at_home(Buffer buffer, const shared_ptr[NativeDevice]& device):
    """Return a buffer over memory that the device has allocated, which copies to the host if that cannot touch it."""
    if buffer.storage.get().on_host():
        buffer.user = weak_ptr[NativeDevice](device)
    else:
        buffer.home = device
    return buffer


cdef Buffer wrap(source):
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


cdef Buffer _over(source, view, tuple shape, int code):
    """Return a Buffer of that shape over the memory of `source` from its first value on, which `view` shows."""
    cdef uintptr_t address = _address(view)
    cdef uint64_t nbytes = math.prod(shape) * DTYPES[code].itemsize
    cdef Buffer owner = _owner(source)
    cdef Buffer buffer
    if owner is not None and _holds(owner.storage.get()[0], address, nbytes):
        buffer = show(owner.storage, address - <uintptr_t>owner.storage.get().data(), shape, code)
        buffer.writable, buffer.user = not view.readonly, owner.user
        return buffer
    if nbytes and address % kBufferAlignment:
        raise ArgumentError(
            f"buffer: expected memory aligned to {kBufferAlignment} bytes, got an address "
            f"{address % kBufferAlignment} bytes past; copy it into Device.empty"
        )
    return show(make_shared[Storage](<void*>address, nbytes, <cbool>(not view.readonly), hold(view)), 0, shape, code)


cdef int _check_itemsize(view, int code) except -1:
    """Check the size of elements: a subclass of ndarray may say anything of itself."""
    if view.itemsize != DTYPES[code].itemsize:
        raise ArgumentError(f"buffer: expected elements of {DTYPES[code].itemsize} bytes, got {view.itemsize}")
    return 0


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
