"""Completions of text, through OpenAI's own client, and what else a server tells about its models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

import pyturbo
from live_server import LiveServer

from ..conftest import KEY

PROMPT = "Once upon a time"
HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, prompt: Any = PROMPT, **options: Any) -> Any:
    options = {"max_tokens": 8, "temperature": 0, **options}
    return client.completions.create(model="stories", prompt=prompt, **options)


def test_text_goes_on_as_the_model_does_alone(client: openai.OpenAI, stories: pyturbo.Model) -> None:
    reply = ask(client, max_tokens=20)
    (choice,) = reply.choices
    assert choice.text == stories.generate(PROMPT, 20, temperature=0).text
    assert (choice.finish_reason, reply.object, reply.model) == ("length", "text_completion", "stories")
    tokens = len(stories.tokenizer.encode(PROMPT))
    usage = reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (tokens, 20, tokens + 20)


def test_a_stream_has_the_same_text_and_the_usage_at_its_end(client: openai.OpenAI) -> None:
    whole = ask(client, max_tokens=20).choices[0].text
    *chunks, last = ask(client, max_tokens=20, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole
    assert len(chunks) > 10
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "length"]
    assert (last.choices, last.usage.completion_tokens) == ([], 20)
    assert len({chunk.id for chunk in [*chunks, last]}) == 1


def test_a_prompt_may_be_token_ids_or_a_list_of_one_text(
    client: openai.OpenAI, stories: pyturbo.Model
) -> None:
    want = ask(client).choices[0].text
    assert ask(client, [*stories.tokenizer.encode(PROMPT)]).choices[0].text == want
    assert ask(client, [PROMPT]).choices[0].text == want
    with pytest.raises(openai.BadRequestError, match="expected one text, got several"):
        ask(client, [PROMPT, PROMPT])
    with pytest.raises(openai.BadRequestError, match="prompt"):
        ask(client, [10**9])


def test_logprobs_have_places_in_the_text(client: openai.OpenAI) -> None:
    (choice,) = ask(client, logprobs=2).choices
    found = choice.logprobs
    assert "".join(found.tokens) == choice.text
    assert [choice.text[place:][: len(token)] for place, token in zip(found.text_offset, found.tokens)] == (
        found.tokens
    )
    assert found.text_offset[0] == 0
    assert all(
        top[token] == logprob == max(top.values())
        for top, token, logprob in zip(found.top_logprobs, found.tokens, found.token_logprobs)
    )
    assert all(len(top) == 2 for top in found.top_logprobs)
    streamed = [chunk.choices[0].logprobs for chunk in ask(client, logprobs=2, stream=True)]
    assert [place for each in streamed if each for place in each.text_offset] == found.text_offset
    assert [token for each in streamed if each for token in each.tokens] == found.tokens


def test_prompts_have_no_logprobs(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="echo: expected none beside logprobs"):
        ask(client, logprobs=2, echo=True)


def test_places_count_characters_that_several_tokens_spell(client: openai.OpenAI) -> None:
    (choice,) = ask(client, logprobs=0, max_tokens=9, extra_body={"regex": "é€x"}).choices
    assert choice.text == "é€x"
    found = dict(zip(choice.logprobs.tokens, choice.logprobs.text_offset))
    assert found["x"] == 2
    assert len(choice.logprobs.tokens) > 3  # some of them are bytes of a character


def test_echo_of_token_ids_is_their_text(client: openai.OpenAI, stories: pyturbo.Model) -> None:
    ids = [*stories.tokenizer.encode(PROMPT)]
    assert ask(client, ids, echo=True).choices[0].text.startswith(PROMPT)
    first, *_ = ask(client, ids, echo=True, stream=True)
    assert first.choices[0].text == PROMPT


def test_several_replies_have_the_next_seeds(client: openai.OpenAI) -> None:
    options = {"temperature": 1.0, "seed": 5}
    several = [choice.text for choice in ask(client, n=3, **options).choices]
    alone = [ask(client, **options | {"seed": 5 + i}).choices[0].text for i in range(3)]
    assert several == alone
    assert len(set(several)) == 3
    streamed = ["", "", ""]
    for chunk in ask(client, n=3, stream=True, echo=True, **options):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == [PROMPT + text for text in several]


def test_a_stop_string_ends_the_text_before_it(client: openai.OpenAI) -> None:
    text = ask(client, max_tokens=40).choices[0].text
    word = text.split()[4]
    (choice,) = ask(client, max_tokens=40, stop=[word, "never said"]).choices
    assert (choice.text, choice.finish_reason) == (text.partition(word)[0], "stop")
    chunks = [*ask(client, max_tokens=40, stop=word, stream=True)]
    assert "".join(chunk.choices[0].text for chunk in chunks) == text.partition(word)[0]


def test_text_becomes_tokens_and_text_again(live: LiveServer, stories: pyturbo.Model) -> None:
    with httpx.Client(base_url=live.url, headers=HEADERS) as http:
        asked = {"model": "stories", "text": "A café in Bern"}
        found, ids = http.post("/tokenize", json=asked).json(), stories.tokenizer.encode("A café in Bern")
        assert found == {"tokens": ids, "count": len(ids)}
        for name in ("content", "prompt"):  # as clients of llama.cpp and of vLLM ask
            assert http.post("/tokenize", json={"model": "stories", name: "A café in Bern"}).json() == found
        spelled = http.post("/detokenize", json={"model": "stories", "tokens": ids}).json()
        assert spelled == dict.fromkeys(("text", "content", "prompt"), "A café in Bern")
        chat = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
        tokens = http.post("/tokenize", json=chat).json()["tokens"]
        spelled = http.post("/detokenize", json={"model": "chat", "tokens": tokens}).json()["text"]
        assert spelled.startswith("<|im_start|>user\nHi<|im_end|>")
        for wrong in ({"text": "a", "messages": []}, {"text": "a", "prompt": "a"}, {}, {"text": 1}):
            assert http.post("/tokenize", json={"model": "chat", **wrong}).status_code == 400
        for wrong_ids in ([10**9], [-1], ["a"], [1.5]):
            answer = http.post("/detokenize", json={"model": "stories", "tokens": wrong_ids})
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["chat", "stories"]
    found: Any = client.models.retrieve("stories")
    assert (found.id, found.object, found.loaded, found.chat) == ("stories", "model", True, False)
    with pytest.raises(openai.NotFoundError, match="expected one of chat, stories"):
        client.models.retrieve("nobody")


def test_health_needs_no_key(live: LiveServer) -> None:
    answer = httpx.get(f"{live.url}/health")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


def test_metrics_count_what_was_done(client: openai.OpenAI, live: LiveServer) -> None:
    before, labels = metrics(live), {"model": "stories"}
    ask(client, max_tokens=5)
    [*ask(client, max_tokens=7, stream=True)]
    with pytest.raises(openai.BadRequestError):
        ask(client, temperature=-1)
    after = metrics(live)

    def more(name: str, **labels: str) -> float:
        key = (name, *sorted(labels.items()))
        return after[key] - before.get(key, 0)

    assert more("pyturbo_reply_tokens_total", **labels) == 12
    assert more("pyturbo_requests_total", path="/v1/completions", status="200") == 2
    assert more("pyturbo_requests_total", path="/v1/completions", status="400") == 1
    assert more("pyturbo_first_token_seconds_count", **labels) == 2
    assert more("pyturbo_token_seconds_count", **labels) == 2
    assert more("pyturbo_steps_total", **labels) > 0
    assert after["pyturbo_running", ("model", "stories")] == 0


def test_metrics_count_texts_that_became_vectors(client: openai.OpenAI, live: LiveServer) -> None:
    name = ("pyturbo_embedded_tokens_total", ("model", "stories"))
    before = metrics(live).get(name, 0)
    usage = client.embeddings.create(model="stories", input=["Once upon a time", "Lily"]).usage
    assert metrics(live)[name] - before == usage.total_tokens


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/completions", "prompt"),
        ("/v1/responses", "input"),
        ("/v1/embeddings", "input"),
        ("/v1/chat/completions", "messages"),
    ],
)
def test_a_prompt_that_is_too_long_is_named_by_its_field(live: LiveServer, path: str, field: str) -> None:
    text = "word " * 5000
    given = [{"role": "user", "content": text}] if field == "messages" else text
    answer = httpx.post(
        f"{live.url}{path}", json={"model": "stories", field: given}, headers=HEADERS, timeout=60
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, field, "context_length_exceeded")


def test_a_prompt_of_several_replies_is_rendered_once(client: openai.OpenAI, prompts: list[str]) -> None:
    said: list[Any] = [{"role": "user", "content": "Hi"}]
    reply = client.chat.completions.create(model="chat", messages=said, n=3, max_tokens=2)
    assert (len(reply.choices), len(prompts)) == (3, 1)


def metrics(live: LiveServer) -> dict[Any, float]:
    """Return all samples by name and labels."""
    text = httpx.get(f"{live.url}/metrics", headers=HEADERS).text
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
