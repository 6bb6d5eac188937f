// The timeline: one axis for every row. Zoom and pan by keys, buttons or drag; the link follows.
import { drawn, read, themed } from "./figures.js";
import { typing } from "./page.js";

let figure = read("figure");
let axis = read("axis");
const place = document.getElementById("timeline");
const share = document.getElementById("share");
let whole = [...figure.layout.xaxis.range];
let range = [...whole];

// The axis has no zone: both ends of a difference are read as UTC, so the difference is exact.
const ms = (text) => Date.parse(`${text.replace(" ", "T")}${text.includes("T") || text.includes(" ") ? "" : "T00:00"}Z`);
const text = (at) => new Date(at).toISOString().replace("Z", "");

// Words for a wide screen, cut to this one; the table below says them whole.
const LETTER_PX = 6.2;
function fitted({ annotations, margin }) {
  const wide = place.clientWidth;
  const [begin, end] = range.map(ms);
  for (const note of annotations) {
    const plain = note.text.replace(/<[^>]*>/g, "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
    if (note.name === "head" && !plain.includes("■") && plain.length * LETTER_PX > wide - 16) note.text = note.text.slice(0, note.text.indexOf("</b>") + 4);
    if (note.name !== "hand" && note.name !== "mark") continue;
    const share = (ms(note.x) - begin) / (end - begin);
    const axis = (wide - margin.l - margin.r) / LETTER_PX;
    if (note.name === "mark" && share > 0.5 && plain.length > axis * (1 - share)) Object.assign(note, { xanchor: "right", xshift: -note.xshift });
    const room = Math.floor(axis * (note.xanchor === "left" ? 1 - share : share));
    if (plain.length <= room) continue;
    const cut = room < 6 ? "" : `${plain.slice(0, room - 1).trimEnd()}…`;
    note.text = cut.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }
}

function draw() {
  const { data, layout } = themed(figure);
  layout.font.family = getComputedStyle(document.body).fontFamily;
  layout.xaxis.range = range;
  fitted(layout);
  place.querySelector(".drawn-first")?.remove();
  window.Plotly.react(place, data, layout, { displayModeBar: false, responsive: true, doubleClick: false });
}

function show(begin, end) {
  const least = 30e3;
  if (end - begin < least) end = begin + least;
  window.Plotly.relayout(place, { "xaxis.range": [text(begin), text(end)] });
}

function followed() {
  const now = place.layout.xaxis.range;
  range = [...now];
  const url = new URL(share.value);
  for (const [name, at] of [["from", now[0]], ["to", now[1]]]) {
    url.searchParams.set(name, `${new Date(axis.since + ms(at) - ms(axis.local)).toISOString().slice(0, 19)}Z`);
  }
  share.value = url.href;
}

function zoom(by) {
  const [begin, end] = range.map(ms);
  const middle = (begin + end) / 2;
  show(middle - ((end - begin) * by) / 2, middle + ((end - begin) * by) / 2);
}

function pan(by) {
  const [begin, end] = range.map(ms);
  show(begin + (end - begin) * by, end + (end - begin) * by);
}

drawn(draw);
// The page has read itself anew: whoever looks at all of it sees the new end, whoever has zoomed stays.
document.addEventListener("switchgear:read", () => {
  const all = range.every((at, i) => ms(at) === ms(whole[i]));
  figure = read("figure");
  axis = read("axis");
  whole = [...figure.layout.xaxis.range];
  if (all) range = [...whole];
  draw();
  if (!all) followed();
});
place.on("plotly_relayout", followed);
place.on("plotly_doubleclick", () => show(...whole.map(ms)));

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-zoom], [data-pan], [data-fit]");
  if (!button) return;
  if (button.dataset.zoom) zoom(Number(button.dataset.zoom));
  else if (button.dataset.pan) pan(Number(button.dataset.pan));
  else show(...whole.map(ms));
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const act = { ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2) }[event.key];
  if (!act || event.target.closest("pre")) return;
  event.preventDefault();
  act();
});
