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
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) { old.data = fresh.data; return; }
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const name of fresh.getAttributeNames()) old.setAttribute(name, fresh.getAttribute(name));
  updateChildren(old, fresh);
}

function keepCurrent(part) {
  const changes = new EventSource(`${part.dataset.changes}?since=${part.dataset.version}`);
  const live = document.getElementById("live");
  let isBusy = false, isOutdated = false;

  async function replace() {
    if (isBusy) { isOutdated = true; return; }
    isBusy = true;
    do {
      isOutdated = false;
      const response = await fetch(part.dataset.live + location.search).catch(() => null);
      if (!response) continue;
      const text = await response.text();
      if (!response.ok) {
        const sentence = new DOMParser().parseFromString(text, "text/html").querySelector(".problem");
        live.textContent = sentence ? sentence.textContent : text;
        live.hidden = false;
        continue;
      }
      const fresh = document.createElement("div");
      fresh.innerHTML = text;
      updateChildren(part, fresh);
    } while (isOutdated);
    isBusy = false;
  }

  changes.onmessage = replace;
  changes.onopen = () => { live.hidden = true; };
  changes.onerror = () => { live.hidden = false; };
}

function followLog(form) {
  const lines = document.getElementById("lines");
  if (!lines) return;
  const limit = 2_000_000;
  const end = document.getElementById("log-end");
  let stream = null, text = "", isDrawn = true, pause = 0;

  function draw() {
    isDrawn = true;
    const begin = performance.now();
    const find = form.elements.find.value;
    lines.textContent = find ? text.split("\n").filter((line) => line.includes(find)).join("\n") : text;
    if (form.elements.end.checked) lines.scrollTop = lines.scrollHeight;
    pause = 4 * (performance.now() - begin);  // A long log is drawn less often, and the page still answers.
  }

  function drawSoon() {
    if (isDrawn) { isDrawn = false; setTimeout(requestAnimationFrame, pause, draw); }
  }

  function open() {
    stream?.close();
    text = "";
    end.textContent = "";
    drawSoon();
    const path = `${form.dataset.job}/log/${form.elements.pod.value}`;
    document.getElementById("download").href = `${path}.txt`;
    stream = new EventSource(path);
    stream.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if ("end" in message) { stream.close(); end.textContent = message.end; return; }
      text = (text + message.text).slice(-limit);
      drawSoon();
    };
    stream.onerror = () => { text = ""; };  // The browser connects again, and the last lines come again.
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.pod.addEventListener("change", open);
  form.elements.find.addEventListener("input", drawSoon);
  open();
}

document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.question;
  if (question && !confirm(question)) event.preventDefault();
});
for (const link of document.querySelectorAll(".views a")) {
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
}
for (const part of document.querySelectorAll("[data-live]")) keepCurrent(part);
const log = document.getElementById("log");
if (log) followLog(log);
const filter = document.getElementById("filter");
filter?.addEventListener("change", () => filter.submit());
