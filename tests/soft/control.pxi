# What Python asks of soft Metal and of soft CUDA. The module that includes this declares the functions native_...,
# their structs, and the name of what they control, NAME.


def cases():
    return [case.name.decode() for case in native_cases()]


def run(str name):
    for case in native_cases():
        if case.name.decode() == name:
            with nogil:
                case.run()
            return
    raise KeyError(name)


def violations():
    """Return the texts of what was done wrong since the last reset, without warnings."""
    return [violation.text.decode() for violation in native_violations() if not violation.warning]


def warnings():
    """Return the texts of violations after which a call went on as if nothing had happened."""
    return [violation.text.decode() for violation in native_violations() if violation.warning]


def counters():
    """Return what happened since the last reset."""
    return native_counters()


def live_objects():
    return {name.decode(): count for name, count in native_live_objects()}


def set_options(**changes):
    """Change the named options."""
    options = native_options()
    for name in changes:
        if name not in options:
            raise TypeError(f"{NAME} has no option {name}")
    native_set_options({**options, **changes})


def inject(str fault, int after=0, int times=1, str text="", int milliseconds=0):
    cdef Injection injection
    injection.fault = Fault[fault]
    injection.after = after
    injection.times = times
    injection.text = text.encode()
    injection.milliseconds = milliseconds
    native_inject(injection)


def reset():
    native_reset()
