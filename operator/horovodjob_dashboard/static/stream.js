// Streams of a page. Each is opened again after any end; until then, its page shows why it has none.
"use strict";

const LOST = "The connection is lost; trying again";
// The server writes every 20 s: a longer silence is that of a dead connection, as after the sleep of a laptop.
const SILENT_MS = 60_000;
const STEADY_MS = 10_000;
const LONGEST_PAUSE_MS = 30_000;
// A browser has six connections to a server for all of its pages: those that nobody sees keep none.
const HIDDEN_MS = 3_000;
let hiddenSince = document.hidden ? 0 : null;

document.addEventListener("visibilitychange", () => { hiddenSince = document.hidden ? Date.now() : null; });

// The server answers requests with the secret of the session only: cookies are also sent to other ports of the host.
function ask(path, options = {}) {
  const secret = localStorage.getItem("horovodjob-page") ?? "";
  return fetch(path, {...options, headers: {"X-HorovodJob-Page": secret}});
}

// An answer of the expected type. Throws the sentence of another one, such as that of the sign-in page of a proxy.
async function expect(type, path, signal) {
  const response = await ask(path, {signal, redirect: "manual"});
  if (response.ok && response.headers.get("Content-Type")?.startsWith(type)) return response;
  const isSignedOut = response.status === 401 || response.type === "opaqueredirect";
  const sentence = isSignedOut ? "Your session has ended; sign in again" : await sentenceOf(response);
  throw Object.assign(new Error(sentence), {status: response.status || 401});
}

async function sentenceOf(response) {
  const text = await response.text();
  const isPage = response.headers.get("Content-Type")?.startsWith("text/html");
  const found = isPage ? new DOMParser().parseFromString(text, "text/html").querySelector(".problem")?.textContent : text;
  return found?.trim().slice(0, 500) || `The dashboard answers ${response.status} ${response.statusText}`;
}

// Shows why a stream is not open; without a problem, nothing.
function showProblem(place, problem) {
  place.hidden = !problem;
  if (!problem) { place.textContent = ""; return; }
  const sentence = problem.message.replace(/\.$/, "");
  const isTried = problem.status && ![401, 404].includes(problem.status);
  place.textContent = isTried ? `${sentence}. Trying again.` : `${sentence}. `;
  if (problem.status !== 401) return;
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "Sign in";
  place.append(link);
}

// Server-sent events over `ask`, for EventSource sends no header and gives up after an answer that is not 200. Awaits
// `onopen`, with whether it was open before, and `onmessages`; what they throw ends the connection, as its loss does.
// Returns a function that ends the stream.
function follow(path, {onopen, onmessages, onproblem}) {
  let isClosed = false, wasOpen = false, failures = 0, connection = null;
  const isUnseen = () => hiddenSince !== null && Date.now() - hiddenSince >= HIDDEN_MS;

  async function read() {
    let heard = Date.now();
    connection = new AbortController();
    const watch = setInterval(() => {
      if (isUnseen() || Date.now() - heard > SILENT_MS) connection.abort();
    }, 1000);
    try {
      const response = await expect("text/event-stream", path, connection.signal);
      await onopen(wasOpen);
      wasOpen = true;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const {value, done} = await reader.read();
        if (done) return;
        heard = Date.now();
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        const messages = events.filter((event) => event.startsWith("data: ")).map((event) => event.slice(6));
        if (messages.length && !isClosed) await onmessages(messages);
      }
    } finally {
      clearInterval(watch);
      connection.abort();
    }
  }

  (async () => {
    while (!isClosed) {
      await untilSeen();
      const began = Date.now();
      const problem = await read().then(() => new Error(LOST), (error) => error.status ? error : new Error(LOST));
      if (isClosed) return;
      if (isUnseen()) continue;
      failures = Date.now() - began > STEADY_MS ? 1 : failures + 1;
      // The first loss of a steady connection is mended before anybody has read about it.
      if (problem.status || failures > 1 || !wasOpen) onproblem(problem);
      await pause(Math.min(500 * 2 ** failures, LONGEST_PAUSE_MS));
    }
  })();
  return () => { isClosed = true; connection?.abort(); };
}

function untilSeen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, {once: true})).then(untilSeen);
}

// Half of the time or more, for pages that have lost a server together do not come back together. It ends at once when
// a user comes back, signs in with another page, or has a network again.
function pause(longestMs) {
  return new Promise((resolve) => {
    const ending = new AbortController();
    const end = () => { ending.abort(); resolve(); };
    const timer = setTimeout(end, longestMs * (1 + Math.random()) / 2);
    ending.signal.addEventListener("abort", () => clearTimeout(timer));
    for (const name of ["online", "storage", "focus"]) addEventListener(name, end, {signal: ending.signal});
    document.addEventListener("visibilitychange", end, {signal: ending.signal});
  });
}
