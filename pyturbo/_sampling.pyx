"""Sampler: tokens from logits, drawn natively."""

from libc.stdint cimport int32_t, uint32_t, uint64_t, uintptr_t
from libcpp.optional cimport optional
from libcpp.vector cimport vector

import numbers
import secrets

from pyturbo._arguments import index, token_ids
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError, StateError


cdef class TopLogits:
    """The largest logits of a vocabulary, as ``ops.top_logits`` finds them in a row: the values, their tokens, and the
    total of the row. They are copied."""

    def __cinit__(self, values, tokens, total, vocab):
        cdef const float[::1] logits = _logits("TopLogits", values)
        cdef const int32_t[::1] ids = None
        cdef TokenLogit each
        cdef Py_ssize_t i
        try:
            ids = tokens
        except (BufferError, TypeError, ValueError):
            pass
        if ids is None or ids.shape[0] != logits.shape[0]:
            raise ArgumentError(f"TopLogits: tokens: expected int32 [{logits.shape[0]}], got {shown(tokens)}")
        self.native.vocab = index("TopLogits: vocab", vocab, least=1, bits=31)
        self.native.total = total
        self.native.first.reserve(logits.shape[0])
        for i in range(logits.shape[0]):
            each.token, each.logit = <uint32_t>ids[i], logits[i]  # no vocabulary has a negative token
            self.native.first.push_back(each)

    def __len__(self):
        return self.native.first.size()

    def __repr__(self):
        return f"TopLogits({len(self)} of {self.native.vocab})"

    def logprobs(self, n):
        """Return the ``n`` most likely tokens as ``top_logprobs`` does, or None if that needs more logits than these."""
        cdef uint32_t count = min(index("logprobs: n", n), self.native.vocab)
        cdef optional[vector[TokenLogprob]] top
        with nogil:
            top = native_top_logprobs(self.native, count)
        return _pairs(top.value()) if top.has_value() else None


cdef class Sampler:
    """Draws one token after the other. The steps, in this order, over the logits of a vocabulary:

    - ``repetition_penalty``: of each token among the last ``repetition_window`` accepted ones (0: all) a positive
      logit is divided by it, any other multiplied, once, and rounded to float32;
    - ``temperature`` 0 ends here, with the largest logit;
    - ``top_k`` (0: off) keeps the k most likely tokens;
    - ``top_p`` (1: off) keeps the smallest set of most likely tokens whose share of the remaining probability
      reaches it, at least one;
    - ``min_p`` (0: off) keeps the tokens that are at least this likely relative to the most likely one;
    - logits that remain are divided by ``temperature``, and one random number selects a token: the first, from the
      most likely on, at which the sum of probabilities reaches the number.

    Equal logits are ordered by token. A logit of -inf forbids its token. The same arguments, logits and accepted
    tokens give the same tokens on every machine. ``seed`` None takes one from the operating system.
    Probabilities have a relative error below 1e-6, which may move the borders of ``top_p`` and ``min_p`` by as much.

    Examples:
        >>> sampler = pyturbo.Sampler(temperature=0.7, top_p=0.9, seed=1)
        >>> sampler
        Sampler(temperature=0.7, top_p=0.9, seed=1)
        >>> token, logprob = sampler.sample(np.array([0.0, 9.0, 1.0], "float32"))
        >>> token
        1
    """

    def __cinit__(self, temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, seed=None,
                  repetition_window=64):
        cdef SamplerOptions options
        options.temperature = _number("temperature", temperature)
        options.top_p = _number("top_p", top_p)
        options.top_k = _integer("top_k", top_k)
        options.min_p = _number("min_p", min_p)
        options.repetition_penalty = _number("repetition_penalty", repetition_penalty)
        options.repetition_window = _integer("repetition_window", repetition_window)
        options.seed = secrets.randbits(64) if seed is None else _integer("seed", seed)
        self.handle.reset(new NativeSampler(options))

    cdef NativeSampler* native(self) except NULL:
        """Return the sampler. It is missing in an object that is found while it is being constructed."""
        if not self.handle:
            raise StateError("the sampler is not made yet")
        return self.handle.get()

    @property
    def seed(self):
        """The seed in use."""
        return self.native().options.seed

    def __repr__(self):
        cdef SamplerOptions options = self.native().options
        given = {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k,
                 "min_p": options.min_p, "repetition_penalty": options.repetition_penalty}
        usual = {"temperature": None, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        shown = [f"{name}={value:g}" for name, value in given.items() if value != usual[name]]
        return f"Sampler({', '.join(shown)}, seed={options.seed})"

    def sample(self, logits):
        """Return a token and its log-probability under the logits as given, before all steps. The logits are copied
        first, so that another thread may write to them."""
        cdef const float[::1] values = _logits("sample", logits)
        cdef TokenLogprob drawn
        cdef NativeSampler* sampler = self.native()
        with nogil:
            drawn = sampler.sample(&values[0], <uint32_t>values.shape[0])
        return drawn.token, drawn.logprob

    def sample_top(self, TopLogits top not None):
        """Return what ``sample`` would return for all logits, or None if that may depend on more of them than these.
        The token is the same; the log-probability may differ in its last digits. The largest logits suffice at
        temperature 0, and if ``top_k`` keeps no more tokens than there are here. A repetition penalty above 1 may
        need more of them, one below 1 always does."""
        cdef optional[TokenLogprob] drawn
        cdef NativeSampler* sampler = self.native()
        with nogil:
            drawn = sampler.sample(top.native)
        return (drawn.value().token, drawn.value().logprob) if drawn.has_value() else None

    def accept(self, tokens):
        """Add a token, or a sequence of tokens, to those that the repetition penalty counts."""
        cdef NativeSampler* sampler = self.native()
        cdef uint32_t token
        if type(tokens) is int and tokens >= 0 and tokens < 2**31:  # without an array, since each token of a reply comes here
            token = tokens
            with nogil:
                sampler.accept(&token, 1)
            return
        cdef const uint32_t[::1] ids = token_ids("accept: tokens", tokens)
        if ids.shape[0]:
            with nogil:
                sampler.accept(&ids[0], ids.shape[0])


def top_logprobs(logits, n):
    """Return the ``n`` most likely tokens with their log-probabilities, most likely first, equal ones by token.
    Forbidden tokens are left out, so there may be fewer than ``n``."""
    cdef const float[::1] values = _logits("top_logprobs", logits)
    cdef uint32_t count = min(index("top_logprobs: n", n), values.shape[0])
    cdef vector[TokenLogprob] top
    with nogil:
        top = native_top_logprobs(&values[0], <uint32_t>values.shape[0], count)
    return _pairs(top)


cdef list _pairs(const vector[TokenLogprob]& top):
    return [(top[i].token, top[i].logprob) for i in range(top.size())]


cdef double _number(str name, value) except *:
    if not isinstance(value, numbers.Real):
        raise ArgumentError(f"Sampler: {name}: expected a number, got {value!r}")
    try:
        return value
    except OverflowError:
        raise ArgumentError(f"Sampler: {name}: expected a number in range, got {shown(value)}") from None


cdef uint64_t _integer(str name, value) except *:
    return index(f"Sampler: {name}", value, bits=64)


cdef const float[::1] _logits(str op, logits) except *:
    """The values of a vocabulary, not copied."""
    cdef const float[::1] values = None
    try:
        values = logits
    except (BufferError, TypeError, ValueError):
        pass
    if values is None or values.shape[0] == 0 or values.shape[0] >= 2**31 or <uintptr_t>&values[0] % sizeof(float):
        array = hasattr(logits, "dtype") and hasattr(logits, "shape")
        found = f"{logits.dtype} {list(logits.shape)}" if array else type(logits).__name__
        raise ArgumentError(f"{op}: logits: expected contiguous, aligned float32 [vocab], got {found}")
    return values
