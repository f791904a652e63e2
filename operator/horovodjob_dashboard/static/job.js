// The page of a job: keys that lead to its parts, and what is folded in its log.
"use strict";

// Open MPI writes its messages between lines of dashes. These repeat that ranks have ended, and that they are ended.
const rule = /^(?:\[\d+,\d+\]<\w+>: ?)?-{20,}$/;
const endOfRanks = /(?:^|: ?)(?:Primary job|(?:mpirun|prterun)(?: has)? (?:detected|exited|noticed)|MPI_ABORT was invoked)/;

// Its longest message has fewer lines.
const mostLines = 60;

// The text of a log as nodes, with what mpirun writes about the end of ranks folded; `isOpen` has the folds to open.
function folded(text, isOpen = []) {
  const parts = [], lines = text.split("\n");
  let begin = 0;
  for (let first = 0; first < lines.length; first += 1) {
    if (!rule.test(lines[first])) continue;
    let last = first + 1, isAboutEnd = false;
    for (; last < lines.length && last < first + mostLines && !rule.test(lines[last]); last += 1) {
      isAboutEnd ||= endOfRanks.test(lines[last]);
    }
    if (!isAboutEnd || !rule.test(lines[last] ?? "")) continue;
    if (first > begin) parts.push({own: lines.slice(begin, first)});
    if (parts.at(-1)?.mpirun) parts.at(-1).mpirun.push(...lines.slice(first, last + 1));
    else parts.push({mpirun: lines.slice(first, last + 1)});
    begin = last + 1;
    first = last;
  }
  if (begin < lines.length) parts.push({own: lines.slice(begin)});
  let number = 0;
  return parts.map((part, index) => {
    const end = index < parts.length - 1 ? "\n" : "";
    if (part.own) return document.createTextNode(part.own.join("\n") + end);
    const fold = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = `mpirun about the end of the ranks, ${part.mpirun.length} lines`;
    fold.append(summary, part.mpirun.join("\n") + end);
    fold.open = Boolean(isOpen[number++]);
    return fold;
  });
}

// A key without Ctrl, Alt or Meta, while nothing is being written; the checkbox ends that for good.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || !document.getElementById("keys")?.checked) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]")) return;
  const link = document.querySelector(`a[aria-keyshortcuts="${CSS.escape(event.key)}"]`);
  if (!link) return;
  event.preventDefault();
  link.click();
});
document.addEventListener("change", (event) => {
  if (event.target.id === "keys") localStorage.setItem("horovodjob-keys", event.target.checked ? "on" : "off");
});
if (document.getElementById("keys")) document.getElementById("keys").checked = localStorage.getItem("horovodjob-keys") !== "off";
