"use strict";
// The value under the pointer. Everything else on this page works without a script.
(() => {
  const LEFT = 64, WIDTH = 820, RIGHT = 8;
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  document.body.append(readout);
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest ? event.target.closest("svg[data-points]") : null;
    readout.hidden = !svg;
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    const at = ((x - LEFT) / (WIDTH - LEFT - RIGHT)) * Number(svg.dataset.span);
    let best = null;
    for (const pair of svg.dataset.points.split(";")) {
      const comma = pair.indexOf(",");
      const away = Math.abs(Number(pair.slice(0, comma)) - at);
      if (!best || away < best.away) best = { away, value: pair.slice(comma + 1) };
    }
    readout.textContent = best ? best.value : "";
    readout.style.left = Math.min(event.clientX + 12, innerWidth - 120) + "px";
    readout.style.top = event.clientY + 12 + "px";
  });
})();
