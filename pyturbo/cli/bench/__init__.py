"""``pyturbo bench``: measure a model, or the runtime itself, on this machine."""

HELP = "measure a model, the runtime, or other engines on this machine"

#: Each is a module here with HELP, add_arguments and run.
COMMANDS = (
    "model",
    "launch",
    "replay",
    "encode",
    "bandwidth",
    "matvec",
    "gpu",
    "kv",
    "stream",
    "peers",
    "batch",
    "serve",
)
