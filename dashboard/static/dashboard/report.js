// Draws the report's charts: figures are data in the page, colours are the theme's own.
const figures = JSON.parse(document.getElementById("charts").textContent);
const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

// A token's value is "light-dark(a, b)" until a property uses it.
function colour(token) {
  probe.style.color = `var(${token})`;
  return getComputedStyle(probe).color;
}

function themed(value) {
  if (typeof value === "string") return value.startsWith("--") ? colour(value) : value;
  if (Array.isArray(value)) return value.map(themed);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, themed(part)]));
}

function draw() {
  const font = getComputedStyle(document.body).fontFamily;
  for (const [id, figure] of Object.entries(figures)) {
    const place = document.getElementById(id);
    if (!place) continue;
    const { data, layout } = themed(figure);
    layout.font.family = font;
    window.Plotly.react(place, data, layout, { displayModeBar: false, responsive: true });
  }
}

draw();
new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
