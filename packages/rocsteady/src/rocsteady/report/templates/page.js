"use strict";
// The value under the pointer, and its time. Everything else on this page works without a script.
(() => {
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  document.body.append(readout);
  const since = (s) => {
    const whole = (unit, of) => Math.floor((of ? s % of : s) / unit);
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${whole(60)} min ${whole(1, 60)} s`;
    return s < 172800 ? `${whole(3600)} h ${whole(60, 3600)} min` : `${whole(86400)} d ${whole(3600, 86400)} h`;
  };
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest ? event.target.closest("svg[data-points]") : null;
    readout.hidden = !svg;
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * Number(svg.dataset.span);
    let best = null;
    for (const pair of svg.dataset.points.split(";")) {
      const comma = pair.indexOf(",");
      const time = Number(pair.slice(0, comma));
      const away = Math.abs(time - at);
      if (!best || away < best.away) best = { away, time, value: pair.slice(comma + 1) };
    }
    readout.textContent = best ? `${best.value} at ${since(best.time)}` : "";
    readout.style.left = Math.min(event.clientX + 12, innerWidth - 190) + "px";
    readout.style.top = event.clientY + 12 + "px";
  });
})();
