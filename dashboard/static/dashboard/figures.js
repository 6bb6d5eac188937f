// Plotly figures as data: colours are names of tokens, replaced by the theme's own.
const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

// A token's value is "light-dark(a, b)" until a property uses it.
function colour(token) {
  probe.style.color = `var(${token})`;
  return getComputedStyle(probe).color;
}

export function themed(value) {
  if (typeof value === "string") {
    if (value.startsWith("--")) return colour(value);
    return value.replace(/style='color:(--[a-z-]+)'/g, (_, token) => `style='color:${colour(token)}'`);
  }
  if (Array.isArray(value)) return value.map(themed);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, themed(part)]));
}

// Draws now and whenever the theme changes; paper has its own.
export function drawn(draw) {
  draw();
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
}

export function read(id) {
  return JSON.parse(document.getElementById(id).textContent);
}
