"""Makes tests/goldens/models/<name>.npz: logits and residual streams of the tiny models by two oracles.

    PYTHONPATH=tests python tests/oracle/make_model_goldens.py            # writes
    PYTHONPATH=tests python tests/oracle/make_model_goldens.py --check    # compares with what is there

``tokens`` [96] is the sequence; ``hf_*`` is transformers on the float32 directory, ``mlx_*`` mlx_lm on the
quantised one: ``_logits`` [96, vocab], ``_layers`` [layers, 2, hidden] after each layer at ``positions``, and
``_checksum`` of the weights, which tells when another machine has rebuilt them otherwise. What mlx_lm does
not compute, transformers does from the dequantised weights. Models in formats of small floats have only an
``mlx`` part.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import mlx_oracle
import numpy as np
import transformers_oracle
from outputs import Outputs, error

from tiny_configs import FP_MODELS, MODELS, TinyModel
from tiny_models import checksum, hf_tensors, mlx_tensors, write_hf, write_mlx

GOLDENS = Path(__file__).parents[1] / "goldens" / "models"
POSITIONS = (70, 95)

#: In standard deviations of the logits. Tests allow 2e-3, so the oracles must agree far better than that.
AGREEMENT = 2e-4
#: Between the router logits of the last chosen expert and the first left out; rounding is below 1e-4.
MARGIN = 4e-3
#: The same of sigmoid scores, whose slope is at most 1/4.
GROUPED_MARGIN = 2.5e-4


def make(model: TinyModel) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays of the golden file, and what is wrong with them."""
    tokens = model.tokens()
    with tempfile.TemporaryDirectory() as folder:
        hf = write_hf(model, Path(folder) / "hf")
        mlx = write_mlx(model, Path(folder) / "mlx")
        want = transformers_oracle.forward(hf, tokens)
        second = mlx_oracle.forward(hf, tokens) if "hf" in model.mlx_lm else None
        if "mlx" in model.mlx_lm:
            quantised = mlx_oracle.forward(mlx, tokens)
        else:
            whole = mlx_oracle.dequantise(mlx, Path(folder) / "whole")
            quantised = transformers_oracle.forward(whole, tokens)
    line = f"{model.name:18} std {want.logits.std():.2f} / {quantised.logits.std():.2f}"
    problems = []
    if second is not None:
        logits_error, layers_error = error(second.logits, want.logits), error(second.layers, want.layers)
        line += f"  mlx vs transformers: logits {logits_error:.1e}, layers {layers_error:.1e}"
        if max(logits_error, layers_error) > AGREEMENT:
            problems.append(f"{model.name}: the oracles disagree")
    if want.routers.size:
        margins = [_margin(model, outputs) for outputs in (want, quantised)]
        line += f"  router margins {margins[0]:.1e} / {margins[1]:.1e}"
        if min(margins) < _least_margin(model):
            problems.append(f"{model.name}: near-tie in a router; choose another seed")
    print(line, flush=True)
    golden = {"tokens": tokens.astype(np.int32), "positions": np.array(POSITIONS, np.int32)}
    golden |= _arrays("hf", want, checksum(hf_tensors(model)))
    golden |= _arrays("mlx", quantised, checksum(mlx_tensors(model)[0]))
    return golden, problems


def make_fp(model: TinyModel) -> tuple[dict[str, np.ndarray], list[str]]:
    """The same of a model that is compared in its MLX directory only."""
    tokens = model.tokens()
    with tempfile.TemporaryDirectory() as folder:
        quantised = mlx_oracle.forward(write_mlx(model, Path(folder)), tokens)
    line, problems = f"{model.name:18} std {quantised.logits.std():.2f}", []
    if quantised.routers.size:
        margin = _margin(model, quantised)
        line += f"  router margin {margin:.1e}"
        if margin < _least_margin(model):
            problems.append(f"{model.name}: near-tie in a router; choose another seed")
    print(line, flush=True)
    golden = {"tokens": tokens.astype(np.int32), "positions": np.array(POSITIONS, np.int32)}
    return golden | _arrays("mlx", quantised, checksum(mlx_tensors(model)[0])), problems


def _margin(model: TinyModel, outputs: Outputs) -> float:
    c = model.text
    if "n_group" not in c:
        return outputs.router_margin(c["num_experts_per_tok"])
    bias = np.stack([a for name, a in hf_tensors(model).items() if name.endswith("e_score_correction_bias")])
    return outputs.grouped_margin(bias, c["num_experts_per_tok"], c["n_group"], c["topk_group"])


def _least_margin(model: TinyModel) -> float:
    return GROUPED_MARGIN if "n_group" in model.text else MARGIN


def _arrays(prefix: str, outputs: Outputs, crc: int) -> dict[str, np.ndarray]:
    return {
        f"{prefix}_logits": outputs.logits.astype(np.float32),
        f"{prefix}_layers": outputs.layers[:, POSITIONS].astype(np.float32),
        f"{prefix}_checksum": np.array(crc, np.uint32),
    }


def compare(name: str, golden: dict[str, np.ndarray], stored: dict[str, np.ndarray]) -> list[str]:
    if golden.keys() != stored.keys():
        return [f"{name}: arrays: expected {sorted(golden)}, got {sorted(stored)}"]
    problems = []
    for key, value in golden.items():
        if value.shape != stored[key].shape:
            problems.append(f"{name}: {key}: expected shape {value.shape}, got {stored[key].shape}")
        elif value.dtype != np.float32:
            if not np.array_equal(value, stored[key]):
                problems.append(f"{name}: {key}: differs")
        elif (difference := error(stored[key], value)) > AGREEMENT:
            problems.append(f"{name}: {key}: differs by {difference:.1e} standard deviations")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("names", nargs="*", help="models; all when none is named")
    arguments = parser.parse_args()
    problems: list[str] = []
    GOLDENS.mkdir(exist_ok=True)
    for name in arguments.names or [*MODELS, *FP_MODELS]:
        golden, found = make(MODELS[name]) if name in MODELS else make_fp(FP_MODELS[name])
        problems += found
        path = GOLDENS / f"{name}.npz"
        if arguments.check:
            with np.load(path) as stored:
                problems += compare(name, golden, dict(stored))
        else:
            np.savez_compressed(path, **golden)
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
