"""`pyturbo verify`: every changed byte is found, and named by file, layer, expert and tensor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyturbo.checkpoint import safetensors
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.manifest import NAME, Manifest
from pyturbo.cli import main
from pyturbo.errors import FileError, FormatError, TurboError
from pyturbo.pack import pack, verify
from tiny_configs import MODELS
from tiny_models import write_hf, write_mlx


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_mlx(MODELS["gpt_oss"], tmp_path_factory.mktemp("source") / "mlx")
    (folder / "generation_config.json").write_text('{"eos_token_id": 3}')
    return folder


@pytest.fixture(scope="module")
def original(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(source, tmp_path_factory.mktemp("packed") / "model").path


@pytest.fixture
def packed(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def flip(path: Path, position: int, bits: int = 0x10) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ bits]))


def positions(rng: np.random.Generator, size: int, count: int) -> list[int]:
    return [0, size - 1, *rng.integers(0, size, count).tolist()]


def test_a_changed_byte_of_any_file_is_found(packed: Path) -> None:
    rng = np.random.default_rng(1)
    names = [NAME, *Manifest.read(packed).sizes()]
    assert verify(packed).ok
    for name in names:
        path = packed / name
        for position in positions(rng, path.stat().st_size, 6):
            flip(path, position)
            found = verify(packed).findings
            assert [finding.file for finding in found] == [name], (name, position)
            flip(path, position)
    assert verify(packed).ok


def test_the_record_and_the_tensor_are_named(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = Manifest.read(packed).layers[1]
    flip(packed / layer.file, 3 * layer.stride + 17)
    flip(packed / layer.file, 5 * layer.stride - 1)  # padding of the record before
    infos, _ = safetensors.read_header(packed / "model.safetensors")
    info = infos["model.layers.2.self_attn.sinks"]
    flip(packed / "model.safetensors", info.offset + 3)
    found = verify(packed).findings
    places = [(one.file, one.layer, one.expert, one.tensor) for one in found]
    assert places == [
        ("model.safetensors", None, None, info.name),
        (layer.file, layer.path, 3, None),
        (layer.file, layer.path, 4, None),
    ]
    with pytest.raises(SystemExit, match="1"):
        main(["verify", str(packed)])
    shown = capsys.readouterr()
    assert f"experts/layer-001.bin: {layer.path}: expert 3: checksum: expected" in shown.out
    assert f"model.safetensors: {info.name}: checksum: expected" in shown.out
    assert shown.err.endswith("MB: 3 problems found\n")
    with pytest.raises(SystemExit, match="1"):
        main(["verify", str(packed), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert [finding["expert"] for finding in report["findings"]] == [None, 3, 4]


def test_a_missing_source_is_found_before_anything_is_read(packed: Path) -> None:
    layer = Manifest.read(packed).layers[0]
    flip(packed / layer.file, 0)
    steps: list[int] = []
    with pytest.raises(TurboError, match="nothing-here"):
        verify(packed, packed.parent / "nothing-here", progress=lambda done, total: steps.append(done))
    assert not steps


def test_one_problem(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(packed / Manifest.read(packed).layers[0].file, 0)
    with pytest.raises(SystemExit, match="1"):
        main(["verify", str(packed)])
    assert capsys.readouterr().err.endswith("MB: 1 problem found\n")


def test_sizes_and_missing_files(packed: Path) -> None:
    layers = Manifest.read(packed).layers
    (packed / layers[0].file).unlink()
    with (packed / layers[1].file).open("r+b") as file:
        file.truncate(layers[1].nbytes - 1)
    (packed / "generation_config.json").unlink()
    assert list(map(str, verify(packed).findings)) == [
        "generation_config.json: cannot be opened: No such file or directory",
        "experts/layer-000.bin: cannot be opened: No such file or directory",
        f"experts/layer-001.bin: expected {layers[1].nbytes} bytes, got {layers[1].nbytes - 1}",
    ]
    (packed / "model.safetensors").write_bytes(b"short")
    assert "model.safetensors: expected" in "\n".join(map(str, verify(packed).findings))


def test_a_record_that_cannot_be_read(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Manifest.read(packed).layers[2]
    fill = TensorFile.fill

    def failing(self: TensorFile, out: np.ndarray, offset: int) -> None:
        if self.path == packed / layer.file and offset // layer.stride == 4:
            raise FileError(f"{self.path}: cannot be read: Input/output error")
        fill(self, out, offset)

    monkeypatch.setattr(TensorFile, "fill", failing)
    assert list(map(str, verify(packed).findings)) == [
        f"{layer.file}: {layer.path}: expert 4: cannot be read: Input/output error"
    ]


def test_padding_that_is_not_zero_though_the_checksum_is_right(packed: Path) -> None:
    """What another writer could do wrong."""
    manifest = Manifest.read(packed)
    layer = manifest.layers[0]
    flip(packed / layer.file, layer.stride - 1)
    wrong = verify(packed).findings[0].what.rpartition(" ")[2]
    text = (packed / NAME).read_text().replace(layer.checksums[0], wrong)
    reseal(packed, json.loads(text))
    assert [finding.what for finding in verify(packed).findings] == ["padding: expected zeros"]


def reseal(packed: Path, entries: dict) -> None:
    from checkpoint.test_manifest import seal

    (packed / NAME).write_bytes(seal(entries))


def test_tensors_that_the_manifest_does_not_have_and_has_too_many_of(packed: Path) -> None:
    entries = json.loads((packed / NAME).read_text())
    sums = entries["resident"]["checksums"]
    sums["model.norm.extra"] = sums.pop("model.norm.weight")
    reseal(packed, entries)
    assert list(map(str, verify(packed).findings)) == [
        "model.safetensors: model.norm.weight: is not in the manifest",
        "model.safetensors: model.norm.extra: expected this tensor, found none",
    ]


def test_a_configuration_that_cannot_be_read(packed: Path) -> None:
    entries = json.loads((packed / NAME).read_text())
    entries["model_type"] = "mixtral"
    reseal(packed, entries)
    assert list(map(str, verify(packed).findings)) == [
        "config.json: model_type: expected 'mixtral', got 'gpt_oss'"
    ]


def test_records_that_make_no_model(packed: Path) -> None:
    """Every checksum is right, but a layer that the configuration has is missing."""
    entries = json.loads((packed / NAME).read_text())
    entries["layers"][0]["path"] = entries["layers"][0]["path"].replace(".0.", ".70.")
    reseal(packed, entries)
    (finding,) = verify(packed).findings
    assert "model.layers.0.mlp.experts" in str(finding)


def test_the_source_is_compared_value_for_value(packed: Path, source: Path, tmp_path: Path) -> None:
    """A pack whose checksums are right, of values that are not those of the source."""
    assert verify(packed, source).compared
    other = Path(shutil.copytree(source, tmp_path / "other"))
    shard = next(other.glob("*.safetensors"))
    infos, _ = safetensors.read_header(shard)
    flip(shard, infos["model.layers.2.mlp.experts.up_proj.scales"].offset + 5)
    assert list(map(str, verify(packed, other).findings)) == [
        f"packed.json: source: expected the fingerprint of {other}, got another one"
    ]
    entries, made = json.loads((packed / NAME).read_text()), pack(other, tmp_path / "made").path
    entries["source"] = json.loads((made / NAME).read_text())["source"]
    reseal(packed, entries)
    assert list(map(str, verify(packed, other).findings)) == [
        "experts/layer-002.bin: model.layers.2.mlp.experts: expert 0: up_proj.scales differs from the source"
    ]
    flip(shard, infos["model.norm.weight"].offset)
    shutil.rmtree(made)
    entries["source"] = json.loads((pack(other, made).path / NAME).read_text())["source"]
    reseal(packed, entries)
    found = verify(packed, other)
    assert str(found.findings[0]) == "model.safetensors: model.norm.weight: differs from the source"
    with pytest.raises(FormatError, match="is damaged: model.safetensors: model.norm.weight: differs"):
        found.require()


def test_files_that_a_reader_could_take_for_part_of_the_model(packed: Path) -> None:
    for name in ("README.md", "merges.txt", "model-00001-of-00002.safetensors"):
        (packed / name).touch()
    assert list(map(str, verify(packed).findings)) == [
        "merges.txt: is not in the manifest",
        "model-00001-of-00002.safetensors: is not in the manifest",
    ]


def test_another_model_is_no_source(packed: Path, tmp_path: Path) -> None:
    other = write_hf(MODELS["mixtral"], tmp_path / "other")
    assert "expected the fingerprint of" in str(verify(packed, other).findings[0])


def test_a_pack_that_is_whole(original: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(original), "--source", str(source)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "18 experts" in shown.err
    assert "all as they were written" in shown.err
    assert main(["verify", str(source)]) == 1
    assert "expected a packed checkpoint, found no packed.json" in capsys.readouterr().err
