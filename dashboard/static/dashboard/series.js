// The charts of a circuit and of a budget; beside a budget's form, the limit as it is being edited.
import { drawn, read, themed } from "./figures.js";

let figures = [read("figure")].flat();
const series = document.getElementById("series");
// A circuit has several, each in a place of its own.
const places = () => series.matches(".chart") ? [series] : [...series.querySelectorAll("[data-chart]")];
// Only a chart of ratios has a place for the limit that is being edited.
const ratio = series.dataset.limit === "ratio" ? document.getElementById("ratio") : null;

function edited(layout) {
  const value = Number(ratio?.value);
  if (!ratio || ratio.value === ratio.defaultValue || ratio.value.trim() === "" || !(value >= 0 && value <= 100)) return;
  const colour = "--info-ink";
  layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: value, y1: value, line: { color: colour, width: 1.4, dash: "dot" } });
  layout.annotations.push({ xref: "paper", x: 1, xanchor: "right", yref: "y", y: value, yanchor: "bottom", showarrow: false, text: `${value}%, as edited, not saved`, font: { color: colour, size: 11 } });
}

function draw() {
  places().forEach((place, i) => {
    const now = structuredClone(figures[i]);
    edited(now.layout);
    const { data, layout } = themed(now);
    layout.font.family = getComputedStyle(document.body).fontFamily;
    window.Plotly.react(place, data, layout, { displayModeBar: false, responsive: true });
  });
}

drawn(draw);
ratio?.addEventListener("input", draw);
document.addEventListener("switchgear:read", () => {
  figures = [read("figure")].flat();
  draw();
});
