"""tokenizer.json with tokenizer_config.json, against the `tokenizers` package itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Package
from tokenizers import decoders, models

from pyturbo.checkpoint.tokenizer import TokenizerSource, huggingface_source
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.text import ChatText, Tokenizer
from text.vocabularies import CORPUS, TEXTS, byte_level, huggingface, sentencepiece

#: A post-processor that names a token which is nowhere explained.
MISSING_TOKEN = (
    '{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}}],'
    '"pair":[],"special_tokens":{}}'
)


@pytest.mark.parametrize("package", [byte_level(), sentencepiece()], ids=["byte_level", "sentencepiece"])
def test_ids_and_text_are_those_of_the_package(package: Package, tmp_path: Path) -> None:
    tokenizer = Tokenizer(huggingface(package, tmp_path))
    assert tokenizer.vocab_size == package.get_vocab_size()
    for text in [*TEXTS, *CORPUS]:
        for special in (True, False):
            ids = tokenizer.encode(text, special)
            assert ids == package.encode(text, add_special_tokens=special).ids
            assert tokenizer.decode(ids) == package.decode(ids)
            assert tokenizer.decode(ids, skip_special=False) == package.decode(ids, skip_special_tokens=False)
            assert [tokenizer.piece(i) for i in ids] == [package.id_to_token(i) for i in ids]


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface(byte_level(), tmp_path)
    monkeypatch.chdir(tmp_path)
    source = huggingface_source(Path(), {})
    monkeypatch.chdir("/")
    assert Tokenizer(source).encode("Hi") == byte_level().encode("Hi").ids


def test_the_file_is_read_once(tmp_path: Path) -> None:
    """Guarding a text needs what the file said, which may since have been replaced."""
    text = ChatText("a <|im_end|>", breaks=[3])
    expected = Tokenizer(huggingface(byte_level(), tmp_path)).encode(text)
    for other in ("{}", None):
        source = huggingface(byte_level(), tmp_path)
        tokenizer = Tokenizer(source)
        assert source.path is not None
        source.path.unlink() if other is None else source.path.write_text(other)
        assert tokenizer.encode(text) == expected


def test_settings_go_before_the_post_processor(tmp_path: Path) -> None:
    """As transformers does: where one of the two is set, both are."""
    ids = sentencepiece().encode("Hi", add_special_tokens=False).ids
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    cases = [
        ({}, [1, *ids]),
        ({"add_bos_token": True}, [1, *ids]),
        ({"add_bos_token": False}, ids),
        ({"add_eos_token": True}, [*ids, 2]),
        ({"add_bos_token": True, "add_eos_token": True}, [1, *ids, 2]),
    ]
    for flags, expected in cases:
        tokenizer = Tokenizer(huggingface(sentencepiece(), tmp_path, settings=settings | flags))
        assert tokenizer.encode("Hi") == expected
        assert tokenizer.encode("Hi", special=False) == ids


def test_first_and_last_tokens(tmp_path: Path) -> None:
    settings = {"bos_token": None, "eos_token": "</s>"}
    source = huggingface(sentencepiece(), tmp_path, settings=settings, bos_id=5, eos_ids=(7, 2))
    tokenizer = Tokenizer(source)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (5, (7, 2))
    settings = {"bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = Tokenizer(huggingface(sentencepiece(), tmp_path, settings=settings, bos_id=5, eos_ids=(7,)))
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, (7, 2))


def test_truncation_in_the_file_is_not_applied(tmp_path: Path) -> None:
    package = Package.from_str(byte_level().to_str())
    package.enable_truncation(3)
    package.enable_padding(length=9)
    tokenizer = Tokenizer(huggingface(package, tmp_path))
    assert tokenizer.encode(CORPUS[0]) == byte_level().encode(CORPUS[0]).ids


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="expected a tokenizer.json beside the weights, found none"):
        Tokenizer(TokenizerSource(kind="huggingface"))
    path = tmp_path / "tokenizer.json"
    whole = byte_level().to_str()
    for text in (
        "",
        "[]",
        "{}",
        '{"model": 1}',
        whole.replace('"continuing_subword_prefix":null', '"continuing_subword_prefix":"a"'),
        whole.replace('"post_processor":null', f'"post_processor":{MISSING_TOKEN}'),
        whole[:-100],
        whole.replace('"merges":[', '"merges":[["a","?!"],'),
        whole.replace('"decoder":{', '"decoder":{"type":"Sequence","decoders":[["Fuse"]]},"x":{'),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(FormatError, match="tokenizer.json: (not|expected)"):
            Tokenizer(TokenizerSource(kind="huggingface", path=path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="tokenizer.json: not valid JSON"):
        Tokenizer(TokenizerSource(kind="huggingface", path=path))


def test_half_characters_in_settings_are_refused(tmp_path: Path) -> None:
    for value in ("\ud800", {"content": "a\ud800"}):
        source = huggingface(byte_level(), tmp_path, settings={"bos_token": value})
        with pytest.raises(FormatError, match="'bos_token': expected whole characters, got '.*ud800'"):
            Tokenizer(source)


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.WordPiece(),
        decoders.Metaspace(),
        decoders.Sequence([]),
        decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", " ")]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
        decoders.Strip(" ", 1, 0),
    ],
)
def test_other_decoders_are_refused(decoder: decoders.Decoder | None, tmp_path: Path) -> None:
    package = Package(models.BPE({"a": 0}, []))
    if decoder is not None:
        package.decoder = decoder
    with pytest.raises(FormatError, match="tokenizer.json: decoder: expected ByteLevel, or Replace"):
        Tokenizer(huggingface(package, tmp_path))


def test_an_empty_vocabulary_is_refused(tmp_path: Path) -> None:
    package = Package(models.BPE())
    package.decoder = decoders.ByteLevel()
    with pytest.raises(FormatError, match="expected a vocabulary, got an empty one"):
        Tokenizer(huggingface(package, tmp_path))


def test_text_must_be_text(tmp_path: Path) -> None:
    tokenizer = Tokenizer(huggingface(byte_level(), tmp_path))
    with pytest.raises(ArgumentError, match="encode: text: expected text, got 3"):
        tokenizer.encode(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="encode: text: expected whole characters"):
        tokenizer.encode("half \ud83c")


def test_ids_of_a_sparse_vocabulary(tmp_path: Path) -> None:
    state = json.loads(byte_level().to_str())
    state["added_tokens"][0]["id"] = 1000
    tokenizer = Tokenizer(huggingface(Package.from_str(json.dumps(state)), tmp_path))
    for i in (tokenizer.vocab_size - 1, tokenizer.vocab_size, 999):
        tokenizer.decode([i])
    assert all(i < tokenizer.vocab_size for i in tokenizer.encode("<|im_start|>"))
