"use strict";
// One video in a dialog: rows of labels, probabilities as shade, zoom by wheel, drag, buttons and keys. No library.
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const dialog = document.getElementById("viewer");
  const canvas = document.getElementById("canvas");
  const readout = document.getElementById("readout");
  const heading = document.getElementById("viewer-title");
  const RIGHT = 10, AXIS = 26;
  let LEFT = 148;
  let video = null, from = 0, to = 1, cursor = null, drawn = [];

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  function unpack(probability) {
    if (!probability || probability.values) return;
    probability.values = bytes(probability.bytes);
    probability.seconds = new Float32Array(bytes(probability.times).buffer);
  }

  function open(id, start, end) {
    video = page.videos.find((v) => v.id === id);
    if (!video) return;
    unpack(video.phases_probability);
    unpack(video.tools_probability);
    heading.textContent = id;
    [from, to] = [video.start, video.end];
    if (start !== undefined) {
      const margin = Math.max(3 * (end - start), 60);
      from = Math.max(video.start, start - margin);
      to = Math.min(video.end, end + margin);
    }
    cursor = null;
    if (!dialog.open) dialog.showModal();
    draw();
  }

  const x = (second, width) => LEFT + ((second - from) / (to - from)) * (width - LEFT - RIGHT);
  const clock = (s) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;

  function rows() {
    const list = [];
    if (video.phases) {
      list.push({ title: "Phases" });
      for (const name of Object.keys(video.phases)) list.push({ name, runs: video.phases[name], height: 22, phases: true });
      if (video.phases_probability) list.push({ name: "probability", stacked: video.phases_probability, height: 56 });
    }
    if (video.tools) {
      list.push({ title: "Tools" });
      video.tools.forEach((tool, k) => {
        const names = Object.keys(tool);
        names.forEach((name, i) => list.push({
          name: i ? "" : page.tools[k], label: name, runs: tool[name], height: 7, tool: k, last: i === names.length - 1,
          shade: i === names.length - 1 ? video.tools_probability : null,
        }));
      });
    }
    return list;
  }

  function draw() {
    if (!video) return;
    const list = rows();
    const tall = (r) => (r.title ? 24 : r.shade ? 22 : r.height);
    const gap = (r) => (r.tool === undefined ? 3 : r.last ? 7 : 1);
    // Everything in one view: rows get thinner on a low screen, down to what can still be read.
    const natural = list.reduce((sum, r) => sum + tall(r) + gap(r), 0) + AXIS;
    const above = canvas.getBoundingClientRect().top - dialog.getBoundingClientRect().top + dialog.scrollTop;
    const room = 0.94 * window.innerHeight - above - 24;
    const squeeze = Math.max(Math.min((room - AXIS) / (natural - AXIS), 1), 0.45);
    for (const row of list) row.drawn = (row.title ? Math.max(squeeze, 0.7) : squeeze) * tall(row);
    const heights = list.map((r) => r.drawn + squeeze * gap(r));
    const height = heights.reduce((a, b) => a + b, 0) + AXIS;
    const width = Math.max(canvas.clientWidth, 320), scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const c = canvas.getContext("2d");
    c.font = "12px system-ui, sans-serif";
    LEFT = Math.ceil(Math.max(...list.map((r) => c.measureText(r.name || "").width))) + 14;
    c.scale(scale, scale);
    c.fillStyle = "#fff";
    c.fillRect(0, 0, width, height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    drawn = [];
    let y = 0;
    list.forEach((row, i) => {
      if (row.title) {
        c.fillStyle = "#222";
        c.font = "600 13px system-ui, sans-serif";
        c.fillText(row.title, 0, y + 0.6 * row.drawn);
        c.font = "12px system-ui, sans-serif";
      } else {
        const tall = row.drawn, thin = squeeze * row.height;
        c.fillStyle = "#444";
        c.textAlign = "right";
        c.fillText(row.name, LEFT - 8, y + (row.tool === undefined ? tall / 2 : 11 * squeeze));
        c.textAlign = "left";
        c.save();
        c.beginPath();
        c.rect(LEFT, y - 1, width - LEFT - RIGHT, tall + 2);
        c.clip();
        if (row.stacked) stack(c, row.stacked, y, tall, width);
        else if (row.phases) for (const [a, b, v] of row.runs) {
          if (b < from || a > to) continue;
          c.fillStyle = v < 0 ? "#e4e4e4" : page.colors[v % page.colors.length];
          c.fillRect(x(a, width), y, Math.max(x(b, width) - x(a, width), 0.4), tall);
        } else {
          if (row.shade) shade(c, row.shade, row.tool, y, tall, width);
          c.fillStyle = page.rows[row.label];
          const top = row.shade ? y + tall - thin : y;
          for (const [a, b, v] of row.runs) {
            if (v === 1 && b >= from && a <= to) c.fillRect(x(a, width), top, Math.max(x(b, width) - x(a, width), 0.4), thin);
            if (v < 0 && b >= from && a <= to) { c.save(); c.fillStyle = "#e4e4e4"; c.fillRect(x(a, width), top, x(b, width) - x(a, width), thin); c.restore(); }
          }
        }
        c.restore();
        drawn.push({ ...row, y, tall });
      }
      y += heights[i];
    });
    axis(c, y, width);
    if (cursor !== null) {
      c.strokeStyle = "#222";
      c.beginPath();
      c.moveTo(x(cursor, width), 0);
      c.lineTo(x(cursor, width), y);
      c.stroke();
    }
    canvas.dataset.from = from.toFixed(2);
    canvas.dataset.to = to.toFixed(2);
    tell();
  }

  // Columns of pixels: the mean probability of the frames that fall into each.
  function columns(p, width, visit) {
    const left = Math.floor(LEFT), right = width - RIGHT;
    let i = first(p.seconds, from - p.step);
    for (let px = left; px < right; px += 1) {
      const until = from + ((px + 1 - LEFT) / (right - LEFT)) * (to - from);
      const since = from + ((px - LEFT) / (right - LEFT)) * (to - from);
      while (i < p.seconds.length && p.seconds[i] + p.step <= since) i += 1;
      let j = i, n = 0;
      const sum = new Array(p.classes).fill(0);
      while (j < p.seconds.length && p.seconds[j] < until) {
        for (let k = 0; k < p.classes; k += 1) sum[k] += p.values[j * p.classes + k];
        n += 1;
        j += 1;
      }
      if (n) visit(px, sum.map((s) => s / n / 255));
    }
  }

  function first(seconds, value) {
    let low = 0, high = seconds.length;
    while (low < high) { const mid = (low + high) >> 1; if (seconds[mid] < value) low = mid + 1; else high = mid; }
    return low;
  }

  function stack(c, p, y, tall, width) {
    columns(p, width, (px, fraction) => {
      let top = y;
      fraction.forEach((s, k) => {
        if (s <= 0.002) return;
        c.fillStyle = page.colors[k % page.colors.length];
        c.fillRect(px, top, 1.05, s * tall);
        top += s * tall;
      });
    });
  }

  function shade(c, p, tool, y, tall, width) {
    c.fillStyle = page.shade;
    columns(p, width, (px, fraction) => c.fillRect(px, y + tall * (1 - fraction[tool]), 1.05, tall * fraction[tool]));
  }

  function axis(c, y, width) {
    const span = to - from, room = width - LEFT - RIGHT;
    const half = c.measureText(clock(to)).width / 2;
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400];
    const step = steps.find((s) => (s / span) * room >= 2 * half + 12) || 28800;
    c.strokeStyle = "#999";
    c.fillStyle = "#444";
    c.textAlign = "center";
    c.beginPath();
    c.moveTo(LEFT, y + 1);
    c.lineTo(width - RIGHT, y + 1);
    const labels = [];
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      c.moveTo(x(t, width), y + 1);
      c.lineTo(x(t, width), y + 6);
      // The last label stays on the canvas.
      const middle = Math.min(x(t, width), width - half - 1);
      c.fillText(clock(t), middle, y + 15);
      labels.push([middle - half, middle + half].map((e) => Math.round(10 * e) / 10));
    }
    canvas.dataset.labels = JSON.stringify(labels);
    c.stroke();
    c.textAlign = "left";
  }

  function at(runs, second) {
    const run = runs.find(([a, b]) => second >= a && second < b);
    return run ? run[2] : null;
  }

  function tell() {
    if (cursor === null) {
      readout.textContent = "Point at the picture, or use the arrow keys on it, to read labels and probabilities. Zoom with the wheel or + and −, drag to move, double-click for the entire video.";
      spoken();
      return;
    }
    const parts = [];
    if (video.phases) {
      for (const name of Object.keys(video.phases)) {
        const v = at(video.phases[name], cursor);
        if (v !== null) parts.push(`${name}: ${v < 0 ? "not annotated" : page.phases[v]}`);
      }
      const p = video.phases_probability;
      if (p) {
        const i = Math.min(Math.max(first(p.seconds, cursor + 1e-6) - 1, 0), p.seconds.length - 1);
        const best = page.phases.map((n, k) => [p.values[i * p.classes + k] / 255, n]).sort((a, b) => b[0] - a[0]).slice(0, 2);
        parts.push("probability: " + best.map(([s, n]) => `${n} ${s.toFixed(2)}`).join(", "));
      }
    }
    if (video.tools) {
      const p = video.tools_probability;
      const i = Math.min(Math.max(first(p.seconds, cursor + 1e-6) - 1, 0), p.seconds.length - 1);
      const seen = [];
      page.tools.forEach((n, k) => {
        const s = p.values[i * p.classes + k] / 255;
        const rows = ["truth", "raw"].filter((row) => video.tools[k][row]).map((row) => [row, at(video.tools[k][row], cursor)]);
        if (s < 0.05 && !rows.some(([, v]) => v === 1)) return;
        const shown = rows.filter(([, v]) => v !== null).map(([row, v]) => `${row} ${v === 1 ? "yes" : v === 0 ? "no" : "not annotated"}`);
        seen.push(`${n} ${s.toFixed(2)}${shown.length ? ` (${shown.join(", ")})` : ""}`);
      });
      parts.push("tools: " + (seen.join(", ") || "none"));
    }
    readout.textContent = `${clock(cursor)}  ·  ${parts.join("  ·  ")}`;
    spoken();
  }

  // The picture is a slider along time: screen readers read its value.
  function spoken() {
    canvas.setAttribute("aria-valuemin", video.start.toFixed(1));
    canvas.setAttribute("aria-valuemax", video.end.toFixed(1));
    canvas.setAttribute("aria-valuenow", (cursor === null ? from : cursor).toFixed(1));
    canvas.setAttribute("aria-valuetext", readout.textContent);
  }

  // The cursor moves by a hundredth of what is shown, with Shift by a tenth; the picture follows it.
  function point(direction, coarse) {
    const by = direction * (to - from) / (coarse ? 10 : 100);
    cursor = Math.min(Math.max((cursor === null ? (from + to) / 2 : cursor) + by, video.start), video.end - 0.01);
    if (cursor < from) move(cursor - from); else if (cursor > to) move(cursor - to); else draw();
  }

  function zoom(factor, center) {
    if (!video) return;
    const middle = center === undefined ? (from + to) / 2 : center;
    const span = Math.min(Math.max((to - from) * factor, 5), video.end - video.start);
    from = Math.min(Math.max(middle - ((middle - from) / (to - from)) * span, video.start), video.end - span);
    to = from + span;
    draw();
  }

  function move(seconds) {
    const span = to - from;
    from = Math.min(Math.max(from + seconds, video.start), video.end - span);
    to = from + span;
    draw();
  }

  const second = (event) => {
    const box = canvas.getBoundingClientRect();
    return from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * (to - from);
  };

  let held = null;
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, second(e)); }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => { held = second(e); canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (e) => {
    if (held !== null) move(held - second(e));
    cursor = Math.min(Math.max(second(e), from), to);
    draw();
  });
  canvas.addEventListener("pointerleave", () => { cursor = null; draw(); });
  canvas.addEventListener("dblclick", () => { [from, to] = [video.start, video.end]; draw(); });
  window.addEventListener("resize", () => { if (dialog.open) draw(); });
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  const step = (n) => { const i = page.videos.indexOf(video) + n; if (page.videos[i]) open(page.videos[i].id); };
  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), whole: () => { [from, to] = [video.start, video.end]; draw(); },
    previous: () => step(-1), next: () => step(1), close: () => dialog.close(),
  };
  for (const button of dialog.querySelectorAll("button")) button.addEventListener("click", () => actions[button.dataset.do]());
  dialog.addEventListener("keydown", (e) => {
    const span = to - from;
    const keys = { "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.whole, ArrowLeft: () => point(-1, e.shiftKey), ArrowRight: () => point(1, e.shiftKey), PageUp: () => move(-span / 2), PageDown: () => move(span / 2), n: actions.next, p: actions.previous };
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
  for (const card of document.querySelectorAll("[data-video]")) {
    card.addEventListener("click", () => open(
      card.dataset.video,
      card.dataset.start === undefined ? undefined : Number(card.dataset.start),
      card.dataset.end === undefined ? undefined : Number(card.dataset.end),
    ));
  }
})();
