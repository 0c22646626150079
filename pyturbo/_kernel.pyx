"""Kernel: one kernel of the shaders on one device, called with Python values."""

from cpython.number cimport PyNumber_Index
from libc.stdint cimport int32_t, uint32_t, uintptr_t
from libc.string cimport memcpy
from libcpp.memory cimport shared_ptr
from libcpp.string_view cimport string_view

from pyturbo._buffer cimport Buffer, wrap
from pyturbo._core cimport ArgumentInfo, ArgumentKind, ConstantInfo, DType

from pyturbo._arguments import counts_of, value_bytes
from pyturbo._dtypes import NAMES
from pyturbo.errors import ArgumentError

cdef enum:
    VALUE_BYTES = 4096  # of all value arguments of one launch; the limit of Metal's setBytes

cdef object FROM_DEVICE = object()  # the key to making a Kernel


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


cdef Kernel find_kernel(const shared_ptr[NativeDevice]& device, str name, dict constants):
    """Return the kernel of that name with its function constants bound by name."""
    cdef bytes encoded = name.encode(errors="replace")
    cdef Kernel kernel = Kernel.__new__(Kernel, FROM_DEVICE)
    kernel.device = device
    kernel.info = &device.get().kernel(string_view(<const char*>encoded, len(encoded)))
    _bind_constants(kernel, constants)
    return kernel


cdef Buffer _wrap_argument(Kernel kernel, const ArgumentInfo* info, arg):
    try:
        return wrap(arg)
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
