// Draws the report's charts.
import { drawn, read, themed } from "./figures.js";

const figures = read("charts");

drawn(() => {
  const font = getComputedStyle(document.body).fontFamily;
  for (const [id, figure] of Object.entries(figures)) {
    const place = document.getElementById(id);
    if (!place) continue;
    const { data, layout } = themed(figure);
    layout.font.family = font;
    window.Plotly.react(place, data, layout, { displayModeBar: false, responsive: true });
  }
});
