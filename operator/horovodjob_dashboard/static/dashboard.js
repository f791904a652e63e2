// Keeps the changing part of a page current, follows a log, and asks before a button changes a job.
"use strict";

// Only what differs is changed: the focus, selected texts and marked jobs remain. Rows of jobs have an id, and keep it.
function updateChildren(old, fresh) {
  const ids = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
  for (const child of [...old.children]) if (child.id && !ids.has(child.id)) child.remove();
  const rows = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.id ? rows.get(child.id) : place?.nodeName === child.nodeName && !place.id ? place : null;
    while (same && place && place !== same && !place.id) place = removed(place);
    if (!same) { old.insertBefore(child, place); continue; }
    if (same === place) place = place.nextSibling;
    else old.insertBefore(same, place);
    update(same, child);
  }
  while (place) place = removed(place);
}

// Removes a node; the one after it.
function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function update(old, fresh) {
  if (old.isEqualNode(fresh) || old.classList?.contains("kept")) return;
  if (old.nodeType !== Node.ELEMENT_NODE) { old.data = fresh.data; return; }
  for (const name of old.getAttributeNames()) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);  // what a user has opened stays open
  }
  for (const name of fresh.getAttributeNames()) old.setAttribute(name, fresh.getAttribute(name));
  updateChildren(old, fresh);
}

function keepCurrent(part) {
  const live = document.getElementById("live");

  async function replace() {
    const path = part.dataset.live + location.search;
    const response = await expect("text/html", path, AbortSignal.timeout(SILENT_MS)).catch((problem) => {
      if (problem.status !== 404) throw problem;
      showProblem(live, problem);  // what was deleted remains, and the stream reports its next change
    });
    if (!response) return;
    const fresh = document.createElement("div");
    fresh.innerHTML = await response.text();
    updateChildren(part, fresh);
    part.dispatchEvent(new Event("updated", {bubbles: true}));
    showProblem(live, null);
  }

  const joint = part.dataset.changes.includes("?") ? "&" : "?";
  follow(`${part.dataset.changes}${joint}since=${part.dataset.version}`, {
    onopen: (wasOpen) => wasOpen ? replace() : showProblem(live, null),
    onmessages: replace,
    onproblem: (problem) => showProblem(live, problem),
  });
}

// Opens a page again whose error may pass, such as while the API server is away, and shows its newest sentence.
async function openAgain() {
  for (let failures = 1; ; failures += 1) {
    await pause(Math.min(500 * 2 ** failures, LONGEST_PAUSE_MS));
    await untilSeen();
    const response = await ask(location.href, {signal: AbortSignal.timeout(SILENT_MS)}).catch(() => null);
    if (response && response.status < 500 && response.status !== 429) { location.reload(); return; }
    const sentence = response ? await sentenceOf(response).catch(() => LOST) : LOST;
    document.querySelector("main .problem").textContent = sentence;
  }
}

function followLog(form) {
  const lines = document.getElementById("lines");
  if (!lines) return;
  const limit = 2_000_000;
  const end = document.getElementById("log-end");
  const download = document.getElementById("download");
  let close = () => {}, text = "", changing = "", isDrawn = true, pause = 0;

  function draw() {
    isDrawn = true;
    const begin = performance.now();
    const find = form.elements.find.value, shown = text + changing;
    const has = (line) => line.replace(COLOR, "").includes(find);
    const isOpen = [...lines.querySelectorAll("details")].map((fold) => fold.open);
    if (find) lines.textContent = shown.split("\n").filter(has).join("\n");
    else lines.replaceChildren(...(shown ? folded(shown, isOpen) : []));
    color(lines);
    if (form.elements.end.checked) lines.scrollTop = lines.scrollHeight;
    pause = 4 * (performance.now() - begin);  // A long log is drawn less often, and the page still answers.
  }

  function drawSoon() {
    if (isDrawn) { isDrawn = false; setTimeout(requestAnimationFrame, pause, draw); }
  }

  function open() {
    close();
    clear();
    const path = `${form.dataset.job}/log/${form.elements.pod.value}`;
    download.href = `${path}.txt`;
    close = follow(path, {
      onopen: clear,  // the last lines come again
      onmessages: (messages) => messages.forEach((text) => show(JSON.parse(text))),
      onproblem: (problem) => showProblem(end, problem),
    });
  }

  function clear() {
    text = changing = "";
    showProblem(end, null);
    drawSoon();
  }

  function show(message) {
    if ("problem" in message) throw Object.assign(new Error(message.problem), {status: 502});
    if ("end" in message) {
      close();
      end.hidden = false;
      end.textContent = message.end;
      return;
    }
    text = lastOf(text + message.finished, limit);
    changing = message.changing;
    drawSoon();
  }

  async function save(event) {
    event.preventDefault();
    const response = await ask(download.href).catch(() => null);
    end.hidden = response?.ok;
    if (!response?.ok) { end.textContent = `The download has failed: ${response?.status ?? "no connection"}`; return; }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = /filename="(.*)"/.exec(response.headers.get("Content-Disposition"))?.[1] ?? "log.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  download.addEventListener("click", save);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.pod.addEventListener("change", open);
  form.elements.find.addEventListener("input", drawSoon);
  open();
}

document.addEventListener("submit", async (event) => {
  const form = event.target, button = event.submitter;
  const question = button?.dataset.question;
  if (question && !confirm(question)) { event.preventDefault(); return; }
  if (form.method !== "post" || form.classList.contains("sign-in")) return;
  event.preventDefault();
  const address = button?.getAttribute("formaction") ?? form.getAttribute("action");
  const response = await ask(address, {method: "POST", body: new URLSearchParams(new FormData(form))}).catch(() => null);
  if (!response) { showProblem(document.getElementById("live"), new Error("The dashboard does not answer")); return; }
  if (form.classList.contains("session")) localStorage.removeItem("horovodjob-page");
  if (response.redirected) { location.assign(response.url); return; }
  document.open();
  document.write(await response.text());
  document.close();
});
for (const link of document.querySelectorAll(".views a")) {
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
}
for (const part of document.querySelectorAll("[data-live]")) keepCurrent(part);
// The script of the page, which folds parts of the log, comes after this one.
document.addEventListener("DOMContentLoaded", () => { for (const log of document.querySelectorAll("#log")) followLog(log); });
if (document.getElementById("again")) openAgain();
for (const filter of document.querySelectorAll("#filter")) filter.addEventListener("change", () => filter.submit());
