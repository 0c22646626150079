"""Sampler: tokens from logits, drawn natively."""

from libc.stdint cimport int32_t, uint32_t, uint64_t, uintptr_t
from libcpp.optional cimport optional
from libcpp.vector cimport vector

import secrets
from collections.abc import Mapping, Sequence

from pyturbo._arguments import index, real, token_ids
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

    @property
    def largest(self):
        """The first value, which is NaN or +inf if one of all logits is."""
        return self.native.first[0].logit if self.native.first.size() else float("-inf")

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

    - a mask, if ``sample`` is given one, forbids tokens;
    - ``logit_bias``, a mapping of tokens to numbers, is added to their logits; -inf forbids a token;
    - of each token among the last ``repetition_window`` accepted ones (0: all) a positive logit is divided by
      ``repetition_penalty``, any other multiplied, once; then ``presence_penalty`` is subtracted, and
      ``frequency_penalty`` for each time that the token occurs among them;
    - ``dry_multiplier`` (0: off) penalises tokens that would continue a repetition. If the last n tokens, at least
      ``dry_allowed_length``, have been before among the last ``dry_window`` (0: all), the token that came next there
      loses ``dry_multiplier * dry_base ** (n - dry_allowed_length)``, for the largest such n. Repetitions are counted
      from the last breaker on, one of the sequences of tokens ``dry_breakers``; a token that is one is not penalised;
    - ``temperature`` 0 ends here, with the largest logit;
    - ``top_n_sigma`` (0: off) keeps logits that are at most this many standard deviations of all logits below the
      largest;
    - ``top_k`` (0: off) keeps the k most likely tokens;
    - ``typical_p`` (1: off) keeps the smallest set of tokens whose information, -log(p), is nearest to the entropy and
      whose share of the remaining probability reaches it, at least one;
    - ``top_p`` (1: off) keeps the smallest set of most likely tokens whose share of the remaining probability
      reaches it, at least one;
    - ``min_p`` (0: off) keeps the tokens that are at least this likely relative to the most likely one;
    - with a probability of ``xtc_probability`` (0: off), which takes a random number of its own, the tokens whose
      share of the remaining probability is at least ``xtc_threshold`` are dropped, but for the least likely of them;
    - logits that remain are divided by ``temperature``, and one random number selects a token: the first, from the
      most likely on, at which the sum of probabilities reaches the number.

    Changed logits are computed in float64 and rounded to float32 once. Equal logits are ordered by token. A logit of
    -inf forbids its token: no step counts it. The same arguments, logits and accepted
    tokens give the same tokens on every machine. ``seed`` None takes one from the operating system.
    Probabilities have a relative error below 1e-6, which may move the borders of filters by as much.

    Examples:
        >>> sampler = pyturbo.Sampler(temperature=0.7, top_p=0.9, seed=1)
        >>> sampler
        Sampler(temperature=0.7, top_p=0.9, seed=1)
        >>> token, logprob = sampler.sample(np.array([0.0, 9.0, 1.0], "float32"))
        >>> token
        1
        >>> sampler.sample(np.array([0.0, 9.0, 1.0], "float32"), np.array([0b101], "uint32"))[0] != 1
        True
    """

    def __cinit__(self, temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, seed=None,
                  repetition_window=64, *, presence_penalty=0.0, frequency_penalty=0.0, typical_p=1.0, top_n_sigma=0.0,
                  xtc_probability=0.0, xtc_threshold=0.1, dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2,
                  dry_window=64, dry_breakers=(), logit_bias=None):
        cdef SamplerOptions options
        options.temperature = _number("temperature", temperature)
        options.top_p = _number("top_p", top_p)
        options.top_k = _integer("top_k", top_k)
        options.min_p = _number("min_p", min_p)
        options.repetition_penalty = _number("repetition_penalty", repetition_penalty)
        options.repetition_window = _integer("repetition_window", repetition_window)
        options.seed = secrets.randbits(64) if seed is None else _integer("seed", seed)
        options.presence_penalty = _number("presence_penalty", presence_penalty)
        options.frequency_penalty = _number("frequency_penalty", frequency_penalty)
        options.typical_p = _number("typical_p", typical_p)
        options.top_n_sigma = _number("top_n_sigma", top_n_sigma)
        options.xtc_probability = _number("xtc_probability", xtc_probability)
        options.xtc_threshold = _number("xtc_threshold", xtc_threshold)
        options.dry_multiplier = _number("dry_multiplier", dry_multiplier)
        options.dry_base = _number("dry_base", dry_base)
        options.dry_allowed_length = _integer("dry_allowed_length", dry_allowed_length)
        options.dry_window = _integer("dry_window", dry_window)
        options.dry_breakers = _breakers(dry_breakers)
        options.logit_bias = _biases(logit_bias)
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
        cdef SamplerOptions usual
        given = [("temperature", options.temperature, None), ("top_p", options.top_p, usual.top_p),
                 ("top_k", options.top_k, usual.top_k), ("min_p", options.min_p, usual.min_p),
                 ("repetition_penalty", options.repetition_penalty, usual.repetition_penalty),
                 ("presence_penalty", options.presence_penalty, usual.presence_penalty),
                 ("frequency_penalty", options.frequency_penalty, usual.frequency_penalty),
                 ("typical_p", options.typical_p, usual.typical_p),
                 ("top_n_sigma", options.top_n_sigma, usual.top_n_sigma),
                 ("xtc_probability", options.xtc_probability, usual.xtc_probability),
                 ("dry_multiplier", options.dry_multiplier, usual.dry_multiplier)]
        shown = [f"{name}={value:g}" for name, value, off in given if value != off]
        biased = [f"logit_bias={options.logit_bias.size()} tokens"] if options.logit_bias.size() else []
        return f"Sampler({', '.join([*shown, *biased])}, seed={options.seed})"

    def sample(self, logits, allowed=None):
        """Return a token and its log-probability under the logits as given, before all steps. The logits are copied
        first, so that another thread may write to them.

        ``allowed`` is a mask of the tokens that may be drawn, uint32 [ceil(vocab / 32)]: bit t % 32 of word t // 32
        stands for token t. None allows all."""
        cdef const float[::1] values = _logits("sample", logits)
        cdef const uint32_t[::1] words = _words("sample", allowed)
        cdef TokenMask mask = _mask(words)
        cdef TokenLogprob drawn
        cdef NativeSampler* sampler = self.native()
        with nogil:
            drawn = sampler.sample(&values[0], <uint32_t>values.shape[0], mask)
        return drawn.token, drawn.logprob

    def sample_top(self, TopLogits top not None, allowed=None):
        """Return what ``sample`` would return for all logits, or None if that may depend on more of them than these.
        The token is the same; the log-probability may differ in its last digits. The largest logits suffice at
        temperature 0, and if ``top_k`` keeps no more tokens than there are here. A mask or a penalty may need more of
        them; options that may raise a token, and ``top_n_sigma``, do so unless these are all."""
        cdef const uint32_t[::1] words = _words("sample_top", allowed)
        cdef TokenMask mask = _mask(words)
        cdef optional[TokenLogprob] drawn
        cdef NativeSampler* sampler = self.native()
        with nogil:
            drawn = sampler.sample(top.native, mask)
        return (drawn.value().token, drawn.value().logprob) if drawn.has_value() else None

    def upcoming(self, number):
        """Return ``top_k``, ``top_p``, ``min_p``, ``temperature`` and the random number of one of the next draws, counted
        from 1, or None if other options matter to it. The most likely token is the first of ``top_k`` 1."""
        cdef uint64_t place = index("upcoming: number", number, least=1)
        cdef NativeSampler* sampler = self.native()
        cdef optional[Draw] drawn
        with nogil:
            drawn = sampler.upcoming(place)
        if not drawn.has_value():
            return None
        cdef Draw draw = drawn.value()
        return draw.top_k, draw.top_p, draw.min_p, draw.temperature, draw.number

    def accept(self, tokens):
        """Add a token, or a sequence of tokens, to those that penalties count."""
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
    return real(f"Sampler: {name}", value)


cdef uint64_t _integer(str name, value) except *:
    return index(f"Sampler: {name}", value, bits=64)


cdef vector[vector[uint32_t]] _breakers(sequences) except *:
    cdef vector[vector[uint32_t]] breakers
    cdef const uint32_t[::1] ids
    if not isinstance(sequences, Sequence) or isinstance(sequences, (str, bytes)):
        raise ArgumentError(f"Sampler: dry_breakers: expected sequences of tokens, got {shown(sequences)}")
    for sequence in sequences:
        ids = token_ids("Sampler: dry_breakers", sequence)
        breakers.push_back([ids[i] for i in range(ids.shape[0])])
    return breakers


cdef vector[TokenBias] _biases(biases) except *:
    cdef vector[TokenBias] entries
    cdef TokenBias each
    if biases is None:
        return entries
    if not isinstance(biases, Mapping):
        raise ArgumentError(f"Sampler: logit_bias: expected a mapping of tokens to numbers, got {shown(biases)}")
    for token, bias in biases.items():
        each.token = index("Sampler: logit_bias: token", token, bits=31)
        each.bias = _number("logit_bias", bias)
        entries.push_back(each)
    return entries


cdef const uint32_t[::1] _words(str op, allowed) except *:
    """The words of a mask, not copied; None for None."""
    cdef const uint32_t[::1] words = None
    if allowed is None:
        return words
    try:
        words = allowed
    except (BufferError, TypeError, ValueError):
        pass
    if words is None or words.shape[0] == 0 or <uintptr_t>&words[0] % sizeof(uint32_t):
        array = hasattr(allowed, "dtype") and hasattr(allowed, "shape")
        found = f"{allowed.dtype} {list(allowed.shape)}" if array else type(allowed).__name__
        raise ArgumentError(f"{op}: allowed: expected contiguous, aligned uint32 words, got {found}")
    return words


cdef TokenMask _mask(const uint32_t[::1] words) noexcept:
    return TokenMask() if words is None else TokenMask(&words[0], <size_t>words.shape[0])


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
