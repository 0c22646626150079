"""Program: launches recorded once and replayed natively."""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.memory cimport make_unique
from libcpp.string cimport string
from libcpp.vector cimport vector

from pyturbo._core cimport ArgumentInfo, ArgumentKind, DType
from pyturbo._host_loop cimport HostLoop
from pyturbo._buffer cimport Buffer
from pyturbo._device cimport Device
from pyturbo._kernel cimport Kernel

from pyturbo._arguments import flag, index, value_bytes
from pyturbo._messages import shown
from pyturbo._dtypes import NAMES, code_of
from pyturbo.errors import ArgumentError, StateError
from pyturbo.symbols import HostCall, Launch, LaunchRun, Linear, Loop, Part, Place, Timeline, described


cdef class Cursor:
    """The position of a conversation, given to a replay as the value of a symbol. The replay advances it when done; no
    signal handler runs in between."""

    def __repr__(self):
        return f"Cursor(position={self.position})"


_OPTIONS = ("blocks", "wait", "advance", "ahead")  # arguments of Program.run beside the symbols


cdef class Program:
    """A list of launches. Whatever changes from replay to replay has a name: ``symbols`` are integers, ``blocks``
    are memory. Dependencies between launches follow from what each kernel reads and writes.

    Examples:
        >>> device = pyturbo.Device("cpu")
        >>> x = device.buffer(np.ones(4, "float32"))
        >>> program = pyturbo.Program(device)
        >>> program.add(device.kernel("add"), x, x, x, 4, label="twice")
        >>> program.run()
        >>> program.run()
        >>> x.numpy()
        array([4., 4., 4., 4.], dtype=float32)
        >>> print(program)
          twice                    add(a=float32[4], b=float32[4], y=float32[4], count=4)
    """

    def __cinit__(self, Device device not None, symbols=(), blocks=()):
        self.symbols, self.blocks = _names("symbols", symbols), _names("blocks", blocks)
        for name in self.symbols:
            if name in _OPTIONS:
                raise ArgumentError(f"symbols: expected other names than those of run's options, got {name!r}")
        self.kernels = []
        device.native()
        self.device = device.handle
        self.handle = make_unique[NativeProgram](device.handle, <uint32_t>len(self.symbols), <uint32_t>len(self.blocks))

    cdef NativeProgram* native(self) except NULL:
        """Return the program. It is missing in an object that is found while it is being constructed."""
        if not self.handle:
            raise StateError("the program is not made yet")
        return self.handle.get()

    def __len__(self):
        return self.native().size()

    def __repr__(self):
        return f"Program(launches={len(self)}, symbols={self.symbols}, blocks={self.blocks})"

    def add(self, Kernel kernel not None, *args, str label not None="", when=None, group=0):
        """Append a launch. It takes the arguments of the kernel; integers may also be a ``Linear`` of the program's
        symbols, and memory a ``Place`` in one of its blocks, or a ``Tensor`` over either. Replays in which the symbol
        ``when`` is 0 leave the launch out. Launches with one number as ``group`` touch nothing that others of the group
        write, whatever ranges of memory their symbols could name; 0 is no group."""
        cdef vector[RecordedArgument] bound
        cdef RecordedArgument recorded
        cdef const ArgumentInfo* info
        cdef uint32_t i
        cdef Py_ssize_t position = 0
        texts = []
        for i in range(kernel.info.argument_count):
            info = &kernel.info.arguments[i]
            if info.kind == ArgumentKind.threadgroup:
                continue
            arg = args[position] if position < len(args) else None
            position += 1
            if arg is None and info.condition >= 0:
                continue
            recorded = RecordedArgument()
            recorded.argument = i
            what = f"{kernel.name}: {info.name.decode()}"
            if info.kind == ArgumentKind.buffer:
                self._bind_memory(what, info, getattr(arg, "memory", arg), &recorded.memory)
            elif isinstance(arg, Linear):
                self._read_linear(what, arg, &recorded.integer)
            else:
                recorded.bytes = value_bytes(what, <int>info.dtype, info.components, info.size, arg)
            bound.push_back(recorded)
            texts.append(f"{info.name.decode()}={described(arg)}")
        if position != len(args):
            raise ArgumentError(f"{kernel.name}: expected {position} arguments, got {len(args)}")
        cdef string text = ", ".join(texts).encode(errors="replace"), name = label.encode(errors="replace")
        cdef NativeProgram* program = self.native()
        cdef NativeStrand strand = self._strand(when, group)
        self.kernels.append(kernel)
        with nogil:
            program.add(kernel.info[0], kernel.defaults.constants, bound, name, text, strand)

    def ask(self, HostLoop loop not None):
        """Let the host bring what the launches so far found to be missing. Those up to ``begin_passes`` run once,
        while it works; those up to ``end_passes`` run once and again for each further pass. If nothing is missing, the
        host is not asked. A program asks a loop once, and waits for each replay."""
        loop.native()
        cdef NativeProgram* program = self.native()
        with nogil:
            program.ask(loop.handle)

    def begin_passes(self):
        """Begin the launches of a pass, after ``ask``."""
        cdef NativeProgram* program = self.native()
        with nogil:
            program.begin_passes()

    def end_passes(self):
        """End the launches of a pass, and the loop."""
        cdef NativeProgram* program = self.native()
        with nogil:
            program.end_passes()

    def prepare(self, blocks=None, **symbols):
        """Have the device do what the first replay would do before it: compile kernels, and copy weights to its memory;
        ``Device.progress`` shows it. With blocks and symbols it also does what a replay with these would do before its
        launches; that replay, if it is the next one, begins at once."""
        cdef vector[int64_t] values
        cdef vector[Block] memory
        cdef NativeProgram* program = self.native()
        if blocks is None and not symbols:
            with nogil:
                program.prepare()
            return
        blocks = self._given("prepare", () if blocks is None else blocks, symbols, &memory, &values)
        with nogil:
            program.prepare(values.data(), memory.data())

    def run(self, blocks=(), *, wait=True, advance=0, ahead=False, **symbols):
        """Replay every launch with these blocks, in the order of ``self.blocks``, and these symbols; then add
        ``advance`` to every ``Cursor`` among the symbols, or to each what a dict has under its symbol. A block is None if
        only launches use it that this replay leaves out. Without ``wait`` the device may still be at work on return; see
        ``Device.synchronize`` and ``Device.mark``. With ``ahead`` a GPU is prepared for the next replay while this one runs:
        it is expected to have the same blocks, the advanced cursors and else the same symbols, but for those that ``ahead``
        gives as a dict. Any other will do, too."""
        next_symbols = ahead if isinstance(ahead, dict) else {} if flag("run: ahead", ahead) else None
        self._replay("run", blocks, flag("run: wait", wait), advance, next_symbols, symbols, NULL)

    def profile(self, blocks=(), *, advance=0, **symbols):
        """Replay like ``run``, and return one row per launch: (label, kernel, seconds). Passes are added up."""
        listing, seconds = self.listing(), {}
        for launch, begin, end in self._timed("profile", blocks, advance, symbols).runs:
            seconds[launch] = seconds.get(launch, 0.0) + end - begin
        return [(launch.label, launch.kernel, seconds[i]) for i, launch in enumerate(listing)]

    def timeline(self, blocks=(), *, advance=0, **symbols):
        """Replay like ``run``, and return a ``Timeline``: when each launch ran, in every pass. Launches do not overlap on
        the CPU then, and all devices ask the host at every loop."""
        return self._timed("timeline", blocks, advance, symbols)

    def listing(self):
        """Return one ``Launch`` for each launch, in order."""
        cdef vector[LaunchText] texts = self.native().listing()
        return [
            Launch(texts[i].label.decode(), texts[i].kernel.decode(), texts[i].arguments.decode(), texts[i].waits,
                   texts[i].repeats)
            for i in range(texts.size())
        ]

    def parts(self, blocks=(), **symbols):
        """Return one ``Part`` for each command buffer that a replay with these blocks and symbols would take without host
        loops. Nothing runs."""
        cdef vector[int64_t] values
        cdef vector[Block] memory
        cdef vector[NativePart] parts
        cdef NativeProgram* program = self.native()
        blocks = self._given("parts", blocks, symbols, &memory, &values)
        with nogil:
            parts = program.parts(values.data(), memory.data())
        return [Part(part.begin, part.end, part.seconds) for part in parts]

    def loops(self):
        """Return one ``Loop`` for each call of ``ask``, in order."""
        cdef vector[LoopText] texts = self.native().loops()
        return [
            Loop(texts[i].ask, None if texts[i].begin == kOpen else texts[i].begin,
                 None if texts[i].end == kOpen else texts[i].end)
            for i in range(texts.size())
        ]

    def __str__(self):
        """Return the listing as text. Launches that wait for earlier ones are marked; host loops have lines of their
        own."""
        lines = [
            (i, 1, f"{'|' if launch.waits else ' '} {launch.label:24} {launch.kernel}({launch.arguments})")
            for i, launch in enumerate(self.listing())
        ]
        for loop in self.loops():
            points = zip(loop, ("? ask", "> passes", "< end of passes"))
            lines += [(at, 0, text) for at, text in points if at is not None]
        return "\n".join(text for _, _, text in sorted(lines, key=lambda line: line[:2]))

    cdef object _timed(self, str method, blocks, advance, dict symbols):
        """Replay like `run`, and return the `Timeline`. `method` is the one that was called, for messages."""
        cdef NativeTimeline timed
        self._replay(method, blocks, True, advance, None, symbols, &timed)
        return Timeline(
            timed.begin,
            timed.end,
            [LaunchRun(run.launch, run.begin, run.end) for run in timed.runs],
            [HostCall(call.loop, call.number, call.begin, call.end) for call in timed.calls],
        )

    cdef int _replay(self, str method, blocks, bint wait, advance, dict ahead, dict symbols,
                     NativeTimeline* timeline) except -1:
        cdef vector[int64_t] values, after, expected
        cdef vector[Block] memory
        cdef Cursor cursor
        cdef int64_t advanced
        cdef size_t i
        cdef bint by_name = isinstance(advance, dict)
        if not by_name:
            advance = dict.fromkeys(self.symbols, index(f"{method}: advance", advance))
        blocks = self._given(method, blocks, symbols, &memory, &values)
        cursors = [name for name in self.symbols if isinstance(symbols[name], Cursor)]
        for name in advance if by_name else ():
            if name not in cursors:
                raise ArgumentError(f"{method}: advance: expected cursors among {cursors}, got {shown(name)}")
        after = values
        for i, name in enumerate(self.symbols):
            if isinstance(symbols[name], Cursor):
                advanced = index(f"{method}: advance", advance.get(name, 0))
                if values[i] > INT64_MAX - advanced:
                    found = values[i] + advance[name]
                    raise ArgumentError(f"{method}: {name}: expected a position below 2^63, got {found}")
                after[i] += advanced
        cdef const int64_t* next_values = NULL
        if ahead is not None:
            expected = after
            for name in ahead:
                if name not in self.symbols:
                    raise ArgumentError(f"{method}: ahead: expected symbols among {list(self.symbols)}, got {shown(name)}")
                expected[self.symbols.index(name)] = index(f"{method}: ahead: {name}", ahead[name])
            next_values = expected.data()
        cdef NativeProgram* program = self.native()
        with nogil:
            program.run(values.data(), memory.data(), wait, timeline, next_values)
        for i, name in enumerate(self.symbols):
            if isinstance(symbols[name], Cursor):
                cursor = symbols[name]
                cursor.position = after[i]
        return 0

    cdef tuple _given(self, str method, blocks, dict symbols, vector[Block]* memory, vector[int64_t]* values):
        """Add the memory of all blocks and the values of all symbols, in their order; return the blocks, which own the
        memory and which nobody can change."""
        cdef Block block
        cdef Buffer buffer
        cdef Cursor cursor
        blocks = _tuple(f"{method}: blocks", blocks)
        if symbols.keys() != set(self.symbols) or len(blocks) != len(self.blocks):
            raise ArgumentError(
                f"{method}: expected symbols {list(self.symbols)} and blocks {list(self.blocks)}, "
                f"got {sorted(symbols)} and {len(blocks)} blocks"
            )
        for name in self.symbols:
            given = symbols[name]
            if isinstance(given, Cursor):
                cursor = given
                given = cursor.position
                if given >= 0:
                    values.push_back(cursor.position)
                    continue
            values.push_back(index(f"{method}: {name}", given))
        for name, given in zip(self.blocks, blocks):
            if given is None:
                block.data, block.bytes = <uint8_t*>NULL, 0
                memory.push_back(block)
                continue
            if not isinstance(given, Buffer) or given.readonly:
                raise ArgumentError(f"{method}: {name}: expected a writable Buffer, got {given!r}")
            buffer = given
            self.device.get().require_open()
            buffer.use_on(self.device.get())
            block.data, block.bytes = buffer.address, buffer.nbytes
            memory.push_back(block)
        return blocks

    cdef NativeStrand _strand(self, when, group) except *:
        cdef NativeStrand strand
        if when is not None:
            if when not in self.symbols:
                raise ArgumentError(f"add: when: expected a symbol among {list(self.symbols)}, got {shown(when)}")
            strand.when = self.symbols.index(when)
        strand.group = index("add: group", group, bits=32)
        return strand

    cdef int _bind_memory(self, str what, const ArgumentInfo* info, arg, MemoryRef* memory) except -1:
        cdef Buffer buffer
        if isinstance(arg, Buffer):
            buffer = arg
            code, writable = <int>buffer.code, buffer.writable
            _bind_buffer(buffer, memory)
            memory.bytes = buffer.nbytes
        elif isinstance(arg, Place) and isinstance(arg.block, Buffer):
            buffer = arg.block
            code, writable = code_of(arg.dtype), buffer.writable
            _bind_buffer(buffer, memory)
        elif isinstance(arg, Place):
            if arg.block not in self.blocks:
                raise ArgumentError(f"{what}: expected a block among {list(self.blocks)}, got {arg.block!r}")
            code, writable = code_of(arg.dtype), True
            memory.block = self.blocks.index(arg.block)
        else:
            raise ArgumentError(f"{what}: expected a Buffer or a Place, got {type(arg).__name__}")
        if isinstance(arg, Place):
            self._read_linear(f"{what}: offset", Linear.of(arg.offset), &memory.offset)
            memory.bytes = index(f"{what}: nbytes", arg.nbytes)
            memory.end = -1 if arg.end is None else index(f"{what}: end", arg.end)
        if code != <int>info.dtype and info.dtype != DType.raw:
            raise ArgumentError(f"{what}: expected {NAMES[<int>info.dtype]} elements, got {NAMES[code]}")
        if info.writable and not writable:
            raise ArgumentError(f"{what}: expected a writable buffer, got a read-only one")
        return 0

    cdef int _read_linear(self, str what, linear, NativeLinear* out) except -1:
        cdef Term term
        out.constant = index(what, linear.constant, least=-(2**63))
        for name, factor in linear.terms:
            if name not in self.symbols:
                raise ArgumentError(f"{what}: expected symbols among {list(self.symbols)}, got {name!r}")
            term.symbol, term.factor = self.symbols.index(name), index(what, factor, least=-(2**63))
            out.terms.push_back(term)
        return 0


cdef int _bind_buffer(Buffer buffer, MemoryRef* memory) except -1:
    memory.storage = buffer.storage
    memory.start = buffer.address - buffer.storage.get().data()
    memory.size = buffer.nbytes
    return 0


cdef tuple _names(str what, given):
    names = () if isinstance(given, str) else _tuple(what, given)
    if isinstance(given, str) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{what}: expected a sequence of names, got {shown(given)}")
    return names


cdef tuple _tuple(str what, given):
    try:
        return tuple(given)
    except TypeError:
        raise ArgumentError(f"{what}: expected a sequence, got {type(given).__name__}") from None
