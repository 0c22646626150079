// Server-Sent Events, read from the body of a response.

/**
 * Yield `{data}` for each event and `{comment}` for each comment line. Lines end with CR, LF or both, wherever
 * the pieces of the body were cut; an event that is not closed by an empty line is not yielded.
 */
export async function* readEvents(body) {
  const data = [];
  for await (const line of readLines(body)) {
    if (line === "") {
      if (data.length) yield { data: data.splice(0).join("\n") };
    } else if (line.startsWith(":")) {
      yield { comment: line.slice(1).trim() };
    } else if (line.startsWith("data:")) {
      data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}

async function* readLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      // A CR at the end may be half of a line's end: it waits for the next piece.
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      yield* lines;
    }
    if (rest.endsWith("\r")) yield rest.slice(0, -1);
  } finally {
    reader.cancel().catch(() => {});
  }
}
