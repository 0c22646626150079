"""The page, in Chromium, over a server that says what each test tells it to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from live_server import LiveServer
from serve.browser import NEEDS_CHROMIUM, Reader, chromium
from serve.scripted import Reply, Script

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def opened(script: Script, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    profile = tmp_path_factory.mktemp("profile")
    with LiveServer(script.app(), drain_seconds=1) as server, chromium(profile) as driver:
        reader = Reader(driver, server.url)
        reader.visit()
        yield reader


@pytest.fixture
def reader(opened: Reader, script: Script) -> Iterator[Reader]:
    """The page as on a first visit. At the end the browser has nothing to complain about."""
    script.begin()
    opened.prefer()
    opened.visit()
    opened.log()
    yield opened
    assert opened.log() == []


def bodies(script: Script) -> list[list[str]]:
    """What each request said, without roles."""
    return [[message["content"] for message in body["messages"]] for body in script.requests]


# Sending and streaming


def test_a_reply_is_shown_as_it_comes(reader: Reader, script: Script) -> None:
    script.replies.append(Reply(["Once ", "upon", 1.0, " a time."]))
    reader.say("Begin")
    reader.until(lambda: reader.texts(".reply p") == ["Once upon"])
    assert not reader.is_idle()
    reader.until(lambda: reader.texts(".reply p") == ["Once upon a time."])
    reader.until(reader.is_idle)
    assert reader.texts(".bubble") == ["Begin"]
    [body] = script.requests
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["model"] == "tiny"
    assert body["messages"] == [{"role": "user", "content": "Begin"}]
    assert not {"temperature", "top_p", "top_k", "seed", "max_tokens", "logprobs"} & set(body)


def test_the_next_message_has_the_whole_conversation(reader: Reader, script: Script) -> None:
    script.replies.extend([Reply(["one"]), Reply(["two"])])
    reader.talk("first")
    reader.talk("second")
    assert bodies(script) == [["first"], ["first", "one", "second"]]
    assert [message["role"] for message in script.requests[1]["messages"]] == ["user", "assistant", "user"]


def test_stop_ends_the_request_and_keeps_what_came(reader: Reader, script: Script) -> None:
    script.replies.append(Reply(["Half", 30.0, " of it"]))
    reader.say("Go")
    reader.until(lambda: reader.texts(".reply p") == ["Half"])
    reader.click("Stop")
    assert script.gone.wait(5)
    reader.until(reader.is_idle)
    assert reader.texts(".reply p") == ["Half"]
    assert "stopped" in reader.one(".reply-figures").text


def test_thoughts_are_folded(reader: Reader, script: Script) -> None:
    script.replies.append(Reply(["Four."], thoughts=["Two ", "and two."]))
    reader.talk("2 + 2?")
    thoughts = reader.one(".thoughts")
    assert thoughts.get_attribute("open") is None
    assert thoughts.text == "Thoughts"
    reader.one(".thoughts summary").click()
    reader.until(lambda: reader.texts(".thoughts p") == ["Two and two."])
    assert reader.texts(".reply > .markdown p") == ["Four."]
    reader.talk("And?")
    assert bodies(script)[1] == ["2 + 2?", "Four.", "And?"]


def test_progress_of_a_long_prompt(reader: Reader, script: Script) -> None:
    script.replies.append(Reply(["Read."], progress=[(1024, 4096), (3072, 4096)]))
    reader.say("A long text")
    reader.until(lambda: "1,024 of 4,096 tokens" in reader.one(".waiting").text)
    assert reader.one(".waiting progress").get_property("value") == 0.25
    reader.until(reader.is_idle)
    assert not reader.one(".waiting").is_displayed()


# Conversations


def test_an_edited_message_is_a_branch(reader: Reader, script: Script) -> None:
    script.replies.extend(Reply([text]) for text in ("one", "two", "three"))
    reader.talk("first")
    reader.talk("second")
    reader.click("Edit", within=".message:nth-child(1)")
    field = reader.focused()
    assert field.get_attribute("value") == "first"
    field.send_keys(Keys.BACKSPACE * 5, "other", Keys.ENTER)
    reader.until(lambda: reader.texts(".reply p") == ["three"])
    reader.until(reader.is_idle)
    assert bodies(script)[2] == ["other"]
    assert reader.texts(".turn-count") == ["2 / 2"]
    reader.click("The version before")
    assert reader.texts(".bubble") == ["first", "second"]
    assert reader.texts(".reply p") == ["one", "two"]
    reader.click("The version after")
    assert reader.texts(".bubble") == ["other"]


def test_a_reply_written_again_is_a_branch(reader: Reader, script: Script) -> None:
    script.replies.extend(Reply([text]) for text in ("one", "two", "three"))
    reader.talk("Go")
    reader.click("Write the reply again")
    reader.until(lambda: reader.texts(".reply p") == ["two"])
    reader.until(reader.is_idle)
    assert bodies(script) == [["Go"], ["Go"]]
    reader.click("The version before")
    assert reader.texts(".reply p") == ["one"]
    reader.talk("On")
    assert bodies(script)[2] == ["Go", "one", "On"]


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "stopped"])
def test_an_empty_reply_written_again_keeps_what_follows_it(
    opened: Reader, script: Script, fails: bool
) -> None:
    script.begin()
    script.replies.extend([Reply(status=500) if fails else Reply([30.0]), Reply(["two"]), Reply(["one"])])
    opened.visit()
    opened.say("first")
    if not fails:
        opened.until(lambda: opened.all(".message.writing"))
        opened.click("Stop")
    opened.until(opened.is_idle)
    opened.talk("second")
    again = ".reply .failure button" if fails else ".reply:nth-child(2) [aria-label='Write the reply again']"
    opened.run("arguments[0].click()", opened.one(again))
    opened.until(lambda: opened.texts(".reply p") == ["one"])
    opened.until(opened.is_idle)
    assert opened.texts(".turn-count") == ["2 / 2"]
    opened.click("The version before")
    assert opened.texts(".bubble") == ["first", "second"]
    assert opened.texts(".reply > .markdown")[1] == "two"


def test_conversations_are_there_after_a_reload(reader: Reader, script: Script) -> None:
    script.replies.extend([Reply(["**one**"]), Reply(["two"])])
    reader.talk("first")
    reader.press("k", with_key=Keys.CONTROL)
    reader.talk("second")
    reader.driver.refresh()
    reader.until(lambda: reader.texts(".conversation") == ["second", "first"])
    assert reader.texts(".bubble") == ["second"]
    reader.all(".conversation")[1].click()
    reader.until(lambda: reader.texts(".reply strong") == ["one"])
    reader.driver.back()
    reader.until(lambda: reader.texts(".bubble") == ["second"])


def test_rename_delete_and_undo(reader: Reader, script: Script) -> None:
    reader.talk("first")
    reader.click("More about first")
    reader.press(Keys.ENTER)  # on the first choice
    reader.focused().send_keys("A name", Keys.ENTER)
    reader.until(lambda: reader.texts(".conversation") == ["A name"])
    assert reader.driver.title == "A name · pyturbo"
    reader.click("More about A name")
    reader.press(Keys.ARROW_UP, Keys.ENTER)
    reader.until(lambda: reader.texts(".conversation") == [])
    assert reader.texts(".bubble") == []
    reader.one("#notice button").click()
    reader.until(lambda: reader.texts(".bubble") == ["first"])
    assert reader.texts(".conversation") == ["A name"]


def test_export_and_import(reader: Reader, script: Script) -> None:
    script.replies.append(Reply(["# one"]))
    reader.talk("first")
    exported = reader.run("""
        const { toMarkdown, readExport } = await import("/page/export.js");
        const { conversations } = await import("/page/store.js");
        const json = JSON.stringify({ pyturbo: 1, conversations: conversations() });
        const wrong = '{"conversations": [{}]}';
        return [toMarkdown(conversations()[0]), readExport(json).length, readExport(wrong)];
    """)
    assert exported == ["# first\n\n## You\n\nfirst\n\n## Reply\n\n# one\n", 1, None]


def test_an_imported_file_is_in_the_list(reader: Reader, script: Script, tmp_path: Path) -> None:
    reader.talk("first")
    text = reader.run("return Object.values(localStorage).find((text) => text.includes('first'))")
    reader.visit()
    assert reader.texts(".conversation") == []
    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"pyturbo": 1, "conversations": [json.loads(text)]}))
    reader.one("#import-file").send_keys(str(path))
    reader.until(lambda: reader.texts(".conversation") == ["first"])


def test_an_imported_file_overwrites_no_conversation(reader: Reader, tmp_path: Path) -> None:
    reader.talk("first")
    text = reader.run("return Object.values(localStorage).find((text) => text.includes('first'))")
    path = tmp_path / "older.json"
    path.write_text(json.dumps({"pyturbo": 1, "conversations": [json.loads(text)]}))
    reader.one("#import-file").send_keys(str(path))
    reader.until(lambda: "1 conversation is in the list." in reader.one("#notice").text)
    assert reader.texts(".conversation") == ["first"]  # the same one
    reader.talk("second")
    reader.one("#import-file").send_keys(str(path))
    reader.until(lambda: reader.texts(".conversation") == ["first", "first"])
    reader.run("document.querySelector('#notice').textContent = ''")
    reader.one("#import-file").send_keys(str(path))
    reader.until(lambda: "1 conversation is in the list." in reader.one("#notice").text)
    assert reader.texts(".conversation") == ["first", "first"]  # it is kept, with another id
    reader.driver.refresh()
    reader.until(lambda: reader.texts(".bubble") == ["first", "second"])
    reader.all(".conversation")[1].click()
    reader.until(lambda: reader.texts(".bubble") == ["first"])


# Markdown

DOCUMENT = """# Title
Some **bold**, *italic*, `code <b>`, ~~gone~~ and [a link](https://example.org/a).
- one
- two
  1. deep

> quoted

| a | b |
|---|--:|
| 1 | 2 |

```python
if x < 1: print("<b>")
```
"""

HOSTILE = """<img src=x onerror="document.title = 'taken'">
<script>document.title = 'taken'</script>

[a](javascript:alert(1)) [b](data:text/html,x) <javascript:alert(1)> ![c](https://example.org/x.png)
[d](  java\tscript:alert(1)) **<svg onload=alert(1)>** `<iframe src=x>`

| <video src=x> |
|---|
| <a href="javascript:alert(1)">x</a> |

```html"><script>
</code></pre><script>alert(1)</script>
```
"""


def test_markdown_of_a_reply(reader: Reader, script: Script) -> None:
    script.replies.append(Reply([DOCUMENT[at : at + 3] for at in range(0, len(DOCUMENT), 3)]))
    reader.talk("Write")
    assert reader.texts(".markdown h3") == ["Title"]
    assert reader.texts(".markdown p > strong") == ["bold"]
    assert reader.texts(".markdown p > em") == ["italic"]
    assert reader.texts(".markdown p > code") == ["code <b>"]
    assert reader.texts(".markdown p > s") == ["gone"]
    assert reader.one(".markdown p > a").get_attribute("href") == "https://example.org/a"
    assert reader.texts(".markdown > ul > li > ol > li") == ["deep"]
    assert reader.texts(".markdown blockquote p") == ["quoted"]
    assert reader.texts(".markdown th") == ["a", "b"]
    assert reader.texts(".markdown td.right") == ["2"]
    assert reader.texts(".code .language") == ["python"]
    assert reader.texts(".code pre") == ['if x < 1: print("<b>")']


def test_hostile_text_makes_no_element(reader: Reader, script: Script) -> None:
    script.replies.append(Reply([HOSTILE], thoughts=[HOSTILE]))
    reader.talk(HOSTILE.replace("\t", " ").replace("\n", " "))
    reader.one(".thoughts summary").click()
    reader.until(lambda: reader.texts(".thoughts .code"))
    made = "img, script, svg:not(.icon), iframe, video, [onerror], [onload]"
    assert reader.all(f".thread :is({made})") == []
    links = [link.get_attribute("href") for link in reader.all(".thread a")]
    assert links == ["https://example.org/x.png"] * 2
    assert "taken" not in reader.driver.title.split("·")[1]
    assert "<script>document.title = 'taken'</script>" in reader.texts(".reply > .markdown")[0]


#: A text, and the HTML of what is made of it.
MARKDOWN = [
    ("a\nb", "<p>a<br>b</p>"),
    ("***a*** **b *c***", "<p><strong><em>a</em></strong> <strong>b <em>c</em></strong></p>"),
    ("snake_case_name 2 * 3 * 4", "<p>snake_case_name 2 * 3 * 4</p>"),
    (r"\*a\* ``b`c``", "<p>*a* <code>b`c</code></p>"),
    ("**open and `open", "<p>**open and `open</p>"),
    ("1) a\n2) b", "<ol><li>a</li><li>b</li></ol>"),
    ("3. a\n\n   b", '<ol start="3"><li>a<p>b</p></li></ol>'),
    ("- [x] a", '<ul><li class="task"><span class="box" role="img" aria-label="done">✓</span>a</li></ul>'),
    ("a\n***\nb", "<p>a</p><hr><p>b</p>"),
    ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
    ("#hash", "<p>#hash</p>"),
    ("def f():\n    return 1\n  x", "<p>def f():<br>    return 1<br>x</p>"),
    ("a | b\nno table", "<p>a | b<br>no table</p>"),
    ("&amp; &lt;", "<p>&amp;amp; &amp;lt;</p>"),
]


@pytest.mark.parametrize(("text", "html"), MARKDOWN, ids=[text for text, _ in MARKDOWN])
def test_markdown(opened: Reader, text: str, html: str) -> None:
    made = opened.run(
        """
        const { showMarkdown } = await import("/page/markdown.js");
        const element = document.createElement("div");
        showMarkdown(element, arguments[0]);
        return element.innerHTML;
        """,
        text,
    )
    assert made == html


def test_markdown_of_the_worst_texts_takes_no_time(opened: Reader) -> None:
    pieces = [
        "*a ",
        "**a ",
        "_a ",
        "`",
        "[",
        "[a](",
        "> ",
        "- ",
        "| ",
        "<",
        "\\",
        "![",
        "*a **b ",
        "1. ",
        "~~",
    ]
    slowest = opened.run(
        """
        const { showMarkdown } = await import("/page/markdown.js");
        const times = arguments[0].map((piece) => {
          const begin = performance.now();
          showMarkdown(document.createElement("div"), piece.repeat(20000 / piece.length));
          return [performance.now() - begin, piece];
        });
        return times.sort((a, b) => b[0] - a[0])[0];
        """,
        pieces,
    )
    assert slowest[0] < 1000, slowest


def test_blocks_that_are_complete_stay(opened: Reader) -> None:
    stays = opened.run("""
        const { showMarkdown } = await import("/page/markdown.js");
        const element = document.createElement("div");
        showMarkdown(element, "one\\n\\ntw");
        const [first, second] = element.children;
        showMarkdown(element, "one\\n\\ntwo\\n\\nthree");
        return [element.children[0] === first, element.children[1] === second, element.children.length];
    """)
    assert stays == [True, False, 3]


# Settings


def test_settings_are_sent_and_kept(reader: Reader, script: Script) -> None:
    values = {"temperature": "0.5", "top_p": "0.9", "top_k": "40", "seed": "7", "max_tokens": "64"}
    reader.one("#settings-open").click()
    reader.one("[name=system]").send_keys("Be brief.")
    for name, value in values.items():
        reader.one(f"[name={name}]").send_keys(value)
    reader.press(Keys.ESCAPE)
    reader.run(
        "arguments[0].value = 'other'; arguments[0].dispatchEvent(new Event('change'))", reader.one("#model")
    )
    reader.driver.refresh()
    reader.until(lambda: reader.one("#model").get_property("value") == "other")
    reader.talk("Go")
    [body] = script.requests
    assert {name: body[name] for name in values} == {name: float(value) for name, value in values.items()}
    assert body["model"] == "other"
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_wrong_value_is_not_taken(reader: Reader, script: Script) -> None:
    reader.one("#settings-open").click()
    reader.one("[name=top_p]").send_keys("2")
    reader.one("[name=top_k]").send_keys("3")
    reader.press(Keys.ESCAPE)
    reader.talk("Go")
    assert "top_p" not in script.requests[0]
    assert script.requests[0]["top_k"] == 3


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "in memory"])
def test_the_key(opened: Reader, script: Script, keeps: bool) -> None:
    script.begin()
    script.key = "secret"
    opened.visit()
    opened.until(lambda: "API key" in opened.one("#notice").text)
    opened.all("#notice button")[0].click()
    opened.until(lambda: opened.focused().get_attribute("name") == "key")
    opened.focused().send_keys("secret")
    if keeps:
        opened.one("[name=keep_key]").click()
    opened.press(Keys.ESCAPE)
    opened.until(lambda: len(opened.all("#model option")) == 2)
    assert not opened.one("#notice").is_displayed()
    opened.talk("Go")
    assert script.requests[0]["headers"]["authorization"] == "Bearer secret"
    assert opened.run("return JSON.stringify(localStorage).includes('secret')") is keeps
    opened.driver.refresh()
    opened.until(lambda: opened.all("#model option"))
    opened.until(lambda: opened.one("#notice").is_displayed() is not keeps)
    assert all("401" in line for line in opened.log())


@pytest.mark.parametrize(
    ("theme", "system", "shown"),
    [
        ("system", "dark", "dark"),
        ("system", "light", "light"),
        ("dark", "light", "dark"),
        ("light", "dark", "light"),
    ],
)
def test_dark_and_light(reader: Reader, theme: str, system: str, shown: str) -> None:
    reader.prefer(prefers_color_scheme=system)
    reader.one("#settings-open").click()
    reader.run("arguments[0].click()", reader.one(f"[name=theme][value={theme}]"))
    reader.driver.refresh()
    reader.until(lambda: reader.all("#model option"))
    red, green, blue = reader.run(
        "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert (red + green + blue < 384) is (shown == "dark")


#: Colours of text, and what they stand on.
CONTRASTS = [("text", "ground"), ("text", "said"), ("muted", "ground"), ("muted", "side"), ("muted", "hover")]
CONTRASTS += [("accent", "ground"), ("on-accent", "accent"), ("text", "danger-ground"), ("muted", "raised")]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(reader: Reader, theme: str) -> None:
    """A contrast of 4.5 to 1, which WCAG asks of text."""
    reader.visit(theme=theme)

    def luminance(name: str) -> float:
        value = reader.run(
            f"return getComputedStyle(document.documentElement).getPropertyValue('--{name}')"
        ).strip()
        parts = [int(value[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for text, ground in CONTRASTS:
        dark, light = sorted((luminance(text), luminance(ground)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


# Probabilities

CHANCES = [
    ("The", 0.9, {"The": 0.9, "A": 0.05}),
    (" fox", 0.25, {" dog": 0.5, " fox": 0.25}),
    ("\n", 1.0, {}),
]


def test_probabilities_of_tokens(reader: Reader, script: Script) -> None:
    reader.click("Token probabilities")
    script.replies.append(Reply(chances=CHANCES))
    reader.talk("Tell")
    assert {name: script.requests[0][name] for name in ("logprobs", "top_logprobs")} == {
        "logprobs": True,
        "top_logprobs": 5,
    }
    tokens = reader.all(".token")
    assert [token.get_attribute("textContent") for token in tokens] == ["The", " fox", "\n"]
    sure, unsure = (token.value_of_css_property("background-color") for token in tokens[:2])
    assert opacity(sure) < opacity(unsure)
    webdriver.ActionChains(reader.driver).move_to_element(tokens[1]).perform()
    reader.until(lambda: reader.texts("#token-card .text") == ["␣dog", "␣fox"])
    assert reader.texts("#token-card .chance") == ["50 %", "25 %"]
    assert reader.texts("#token-card .chosen .text") == ["␣fox"]
    webdriver.ActionChains(reader.driver).move_to_element(reader.one("#composer-text")).perform()
    reader.until(lambda: not reader.one("#token-card").is_displayed())
    reader.click("Show tokens and their probabilities")
    assert reader.texts(".reply > .markdown p") == ["The fox"]


def opacity(colour: str) -> float:
    """The last number of a colour such as `color(srgb 0.9 0.6 0 / 0.1)`."""
    return float(colour.rstrip(")").replace(",", " ").split()[-1])


def test_probabilities_by_keyboard(reader: Reader, script: Script) -> None:
    reader.visit(logprobs=True)
    script.replies.append(Reply(chances=CHANCES))
    reader.talk("Tell")
    reader.run("arguments[0].focus()", reader.all(".token")[0])
    reader.until(lambda: reader.texts("#token-card .chosen .text") == ["The"])
    reader.press(Keys.ARROW_RIGHT)
    reader.until(lambda: reader.texts("#token-card .chosen .text") == ["␣fox"])
    assert [token.get_attribute("tabindex") for token in reader.all(".token")] == ["-1", "0", "-1"]


# Figures


def test_figures_of_the_server_are_shown(reader: Reader, script: Script) -> None:
    timings = {
        "prompt_tokens": 50,
        "cached_tokens": 150,
        "prompt_seconds": 0.5,
        "tokens": 64,
        "seconds": 2.0,
    }
    script.replies.append(
        Reply(["a", 0.4, "b", 0.4, "c", 0.4, "d"], timings={**timings, "tokens_per_second": 31.5})
    )
    reader.talk("Go")
    line = reader.one(".reply-figures").text
    assert "31.5 tokens/s" in line
    assert "64 tokens" in line
    assert "75 % of the prompt cached" in line
    assert script.metrics_asked == 0
    reader.click("Figures")
    reader.until(lambda: reader.texts("#server-figures dd"))
    figures = dict(zip(reader.texts("#server-figures dt"), reader.texts("#server-figures dd")))
    assert figures == {
        "Conversations under way": "3",
        "Waiting": "0",
        "Memory of conversations": "1.43 MiB",
        "First token after, mean": "250 ms",
        "Something new": "7",
    }
    assert reader.one("#speed").text == "31.5"
    assert reader.all("#sparkline svg .line")
    assert "150 tokens, 75 %" in reader.texts("#reply-figures dd")
    reader.until(lambda: script.metrics_asked == 2)
    reader.press(Keys.ESCAPE)
    assert not reader.one("#figures").is_displayed()


def test_figures_are_measured_where_the_server_has_none(reader: Reader, script: Script) -> None:
    script.replies.append(Reply([0.3, "a", 0.5, "b", 0.5, "c"]))
    begin = time.monotonic()
    reader.talk("Go")
    seconds = time.monotonic() - begin
    speed, first, count = reader.one(".reply-figures").text.split(" · ")
    after = int(first.removeprefix("first after ").removesuffix(" ms")) / 1000
    assert 0.29 <= after < seconds
    assert 2 / (seconds - after) <= float(speed.removesuffix(" tokens/s")) < 2 / 0.4
    assert count == "3 tokens"


# Keyboard and phone


def test_keyboard_alone(reader: Reader, script: Script) -> None:
    script.replies.extend([Reply(["one"]), Reply(["Half", 30.0])])
    assert reader.focused().get_attribute("id") == "composer-text"
    reader.press("a")
    reader.press(Keys.ENTER, with_key=Keys.SHIFT)
    reader.press("b", Keys.ENTER)
    reader.until(lambda: reader.texts(".reply p") == ["one"])
    assert bodies(script) == [["a\nb"]]
    reader.until(reader.is_idle)
    reader.press("c", Keys.ENTER)
    reader.until(lambda: reader.texts(".reply p") == ["one", "Half"])
    reader.press(Keys.ESCAPE)
    assert script.gone.wait(5)
    reader.until(reader.is_idle)
    reader.press("k", with_key=Keys.CONTROL)
    assert reader.texts(".bubble") == []
    assert reader.focused().get_attribute("id") == "composer-text"


def test_the_way_past_the_list(reader: Reader) -> None:
    link = reader.one("#skip")
    assert link.rect["y"] < 0
    reader.run("arguments[0].focus()", link)
    assert link.rect["y"] >= 0
    reader.press(Keys.ENTER)
    assert reader.focused().get_attribute("id") == "composer-text"


def test_every_control_has_a_name_and_a_visible_focus(reader: Reader, script: Script) -> None:
    reader.talk("Go")
    reader.press(Keys.TAB)
    assert reader.focused().get_attribute("id") == "send"
    assert reader.focused().value_of_css_property("outline-style") == "solid"
    reader.run("document.querySelector('#skip').focus()")
    seen = [reader.focused()]
    for _ in range(40):
        reader.press(Keys.TAB)
        at = reader.focused()
        if at.tag_name == "body" or at == seen[0]:
            break
        seen.append(at)
    ids = [at.get_attribute("id") for at in seen]
    assert {"new-conversation", "model", "composer-text", "settings-open", "figures-open"} <= set(ids)
    for at in seen:
        assert at.accessible_name, at.get_attribute("outerHTML")


def test_screen_readers_hear_the_reply_once(reader: Reader, script: Script) -> None:
    script.replies.append(Reply(["One ", 3.0, "two."]))  # time to look, also on a busy machine
    reader.say("Go")
    reader.until(
        lambda: reader.one("#announcer").get_attribute("textContent") == "The reply is being written."
    )
    reader.until(reader.is_idle)
    reader.until(lambda: reader.one("#announcer").get_attribute("textContent") == "One two.")
    assert reader.one("#announcer").get_attribute("aria-live") == "polite"
    assert reader.one("#thread").get_attribute("aria-live") == "off"


def test_a_phone(reader: Reader, script: Script) -> None:
    table, code = "|column" * 12 + "|\n" + "|---" * 12 + "|\n", f"```\n{'x' * 300}\n```\n"
    wide = "\n".join([table, code, "y" * 300])
    script.replies.append(Reply([wide]))
    with reader.width(360):
        reader.visit()
        drawer = reader.one("#drawer")
        reader.until(lambda: not drawer.is_displayed())
        reader.talk("A rather long question " * 10)
        for panel in ("", "settings-open", "figures-open"):
            if panel:
                reader.one(f"#{panel}").click()
            assert reader.run("return document.documentElement.scrollWidth") == 360
            assert reader.run("return document.querySelector('#thread-scroll').scrollWidth") <= 360
            reader.press(Keys.ESCAPE)
        reader.click("Conversations")
        reader.until(drawer.is_displayed)
        assert reader.focused().get_attribute("id") == "new-conversation"
        reader.press(Keys.ESCAPE)
        reader.until(lambda: not drawer.is_displayed())
        assert reader.focused().get_attribute("id") == "drawer-open"
        for field in reader.all(".stage :is(textarea, select)"):
            assert float(field.value_of_css_property("font-size").removesuffix("px")) >= 16


def test_nothing_moves_where_motion_is_not_wanted(reader: Reader, script: Script) -> None:
    reader.prefer(prefers_reduced_motion="reduce")
    script.replies.append(Reply([0.5, "a"]))
    reader.say("Go")
    reader.until(lambda: reader.all(".dots i"))
    assert reader.run("return document.getAnimations().length") == 0
    reader.until(reader.is_idle)


# What goes wrong


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(status=429, headers={"Retry-After": "60"}), "The server has too much to do."),
        (Reply(status=503), "The server cannot reply now: the status is 503."),
        (Reply(status=400), "the status is 400"),
        (Reply(["Some"], error="out of memory"), "The server could not finish the reply: out of memory"),
        (Reply(["Some"], ends=False), "The connection broke off before the reply was complete."),
    ],
    ids=["429", "503", "400", "error event", "broken off"],
)
def test_errors(opened: Reader, script: Script, reply: Reply, words: str) -> None:
    script.begin()
    opened.visit()
    opened.log()
    script.replies.extend([reply, Reply(["Fine."])])
    opened.run("const now = Date.now(); Date.now = () => now")
    opened.talk("Go")
    assert words in opened.one(".failure").text
    assert opened.texts(".reply > .markdown p") == list(reply.pieces)
    again = opened.one(".failure button")
    if "Retry-After" in reply.headers:
        assert not again.is_enabled()
        assert again.text == "Try again in 60 s"
        opened.run("const later = Date.now() + 60_000; Date.now = () => later")
    opened.until(again.is_enabled)
    again.click()
    opened.until(lambda: opened.texts(".reply > .markdown p") == ["Fine."])
    opened.until(opened.is_idle)
    assert opened.all(".failure") == []
    assert bodies(script) == [["Go"], ["Go"]]
    assert opened.texts(".turn-count") == (["2 / 2"] if reply.pieces else [])
    assert all("status of" in line for line in opened.log())


def test_a_server_that_is_gone(opened: Reader) -> None:
    script = Script()
    with LiveServer(script.app(), drain_seconds=1) as server:
        reader = Reader(opened.driver, server.url)
        reader.visit()
    reader.talk("Go")
    assert "The server cannot be reached." in reader.one(".failure").text
    assert "Try again" in reader.one(".failure").text
    reader.log()


def test_a_browser_without_room(reader: Reader) -> None:
    reader.run("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }")
    reader.talk("Go")
    reader.until(lambda: "no room" in reader.one("#notice").text)
    assert reader.texts(".reply p") == ["Well."]


def test_nothing_comes_from_elsewhere(reader: Reader, script: Script) -> None:
    """The policy is in force: a script that is written into the page does not run; no other site is asked."""
    reader.talk("Go")
    asked = reader.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(asked) > 20
    assert all(name.startswith(reader.address) for name in asked)
    reader.run("""
        const script = document.createElement("script");
        script.textContent = "window.taken = true";
        document.body.append(script);
    """)
    assert reader.run("return window.taken === undefined")
    assert any("Content Security Policy" in line for line in reader.log())
