// Colors of a program's output: the server leaves these sequences of a terminal in a log, and no others.
"use strict";

const COLOR = /\x1b\[([0-9;:]*)m/g;
const FLAGS = {1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"};
const OFF = {22: ["bold", "faint"], 23: ["italic"], 24: ["underline"], 27: ["reverse"], 29: ["strike"]};

// Replaces the sequences in the texts of an element by elements with classes. Texts stay texts: nothing becomes HTML.
function color(place) {
  const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) if (walker.currentNode.data.includes("\x1b[")) texts.push(walker.currentNode);
  const style = new Map();
  for (const node of texts) {
    const parts = node.data.split(COLOR);
    const made = parts.map((part, index) => {
      if (index % 2) { apply(style, part.split(/[;:]/).map(Number)); return ""; }
      return styled(part, style);
    });
    node.replaceWith(...made.filter((each) => each !== ""));
  }
}

function styled(text, style) {
  if (!text || !style.size) return text;
  const span = document.createElement("span");
  span.textContent = text;
  span.className = [...style].map(([name, value]) => value === true ? name : `${name}-${value}`).join(" ");
  return span;
}

// Select Graphic Rendition (ECMA-48). Of the 256 colors and those with three parts, the usual sixteen are shown.
function apply(style, codes) {
  while (codes.length) {
    const code = codes.shift();
    if (code === 0) style.clear();
    else if (FLAGS[code]) style.set(FLAGS[code], true);
    else if (OFF[code]) OFF[code].forEach((name) => style.delete(name));
    else if (code === 38 || code === 48) setExtended(style, code === 38 ? "fg" : "bg", codes);
    else if (code === 39) style.delete("fg");
    else if (code === 49) style.delete("bg");
    else for (const [name, first, shift] of [["fg", 30, 0], ["bg", 40, 0], ["fg", 90, 8], ["bg", 100, 8]]) {
      if (code >= first && code < first + 8) style.set(name, code - first + shift);
    }
  }
}

function setExtended(style, name, codes) {
  const kind = codes.shift();
  if (kind === 5) {
    const index = codes.shift();
    if (index < 16) style.set(name, index);
    else if (index < 232) style.set(name, nearest(...[36, 6, 1].map((unit) => Math.floor((index - 16) / unit) % 6 * 51)));
    else if (index < 256) style.set(name, nearest(...Array(3).fill(8 + 10 * (index - 232))));
  } else if (kind === 2) style.set(name, nearest(...codes.splice(0, 3)));
}

function nearest(red, green, blue) {
  const bright = Math.max(red, green, blue) > 170 ? 8 : 0;
  const half = Math.max(red, green, blue, 60) / 2;
  return (red > half) + 2 * (green > half) + 4 * (blue > half) + bright;
}

// The end of a text, which does not begin within a sequence.
function lastOf(text, limit) {
  if (text.length <= limit) return text;
  const begin = text.length - limit, before = text.lastIndexOf("\x1b[", begin);
  const end = before < 0 ? -1 : text.indexOf("m", before);
  return text.slice(end >= begin && end - before < 80 ? end + 1 : begin);
}
