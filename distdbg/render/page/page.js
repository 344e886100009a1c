"use strict";
// The timeline and the table of ops, from the JSON in the page. Text goes into the page as text only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ops = data.ops, words = data.words, count = ops.lane.length;
  const $ = (id) => document.getElementById(id);
  if (!count || !$("timeline")) return;
  const FLIGHT = words.status.indexOf("in flight"), OK = words.status.indexOf("ok");

  // ------------------------------------------------------------------------------------ words
  const seconds = (us) => { // as record/durations.py spells them
    const three = (value) => (value < 999.5 ? String(Number(value.toPrecision(3))) : value.toFixed(0));
    const two = (many, unit, rest, small) => Math.floor(many) + " " + unit + (rest ? " " + rest + " " + small : "");
    if (us < 1) return three(us * 1e3) + " ns";
    if (us < 1e3) return three(us) + " us";
    if (us < 99.5e3) return three(us / 1e3) + " ms";
    if (us < 995e3) return (us / 1e6).toFixed(2) + " s";
    if (us < 9.95e6) return (us / 1e6).toFixed(1) + " s";
    const whole = Math.round(us / 1e6), minutes = Math.floor(whole / 60);
    if (whole < 60) return whole + " s";
    if (whole < 3600) return two(minutes, "min", whole % 60, "s");
    if (minutes < 1440) return two(minutes / 60, "h", minutes % 60, "min");
    return two(minutes / 1440, "d", Math.floor((minutes % 1440) / 60), "h");
  };
  const tick = (us, step) => { // as exact as the steps need it
    const [unit, size] = step >= 6e7 ? ["min", 6e7] : us >= 1e6 || step >= 1e5 ? ["s", 1e6] : us >= 1e3 || step >= 100 ? ["ms", 1e3] : ["µs", 1];
    return (us / size).toFixed(Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9))) + " " + unit;
  };
  const nbytes = (n) => {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (n < 1024) return (unit === "B" ? n : n.toFixed(1)) + " " + unit;
      n /= 1024;
    }
    return n.toFixed(1) + " TiB";
  };
  const endOf = (i) => (ops.ended[i] < 0 ? (ops.status[i] === FLIGHT ? data.now : ops.issued[i]) : ops.ended[i]);
  const isMessage = (i) => ops.flags[i] & 2;
  const nameOf = (i) => words.name[ops.name[i]] +
    (isMessage(i) ? (ops.peer[i] < 0 ? "" : " with rank " + ops.peer[i]) : " #" + ops.seq[i]);

  // --------------------------------------------------------------------------------- timeline
  const canvas = $("timeline"), paint = canvas.getContext("2d"), box = $("lanes"), tip = $("tip");
  const ROW = data.lanes.length > 24 ? 18 : 26, TOP = 26;
  const LEFT = 26 + 7.2 * Math.max(...data.lanes.map((lane) => lane.label.length));
  const first = Math.min(...ops.issued);
  let last = data.now, view = [0, 1], group = -1, colours = {}, width = 0, byLane = [];
  for (let i = 0; i < count; i++) {
    last = Math.max(last, endOf(i));
    (byLane[ops.lane[i]] ||= []).push(i);
  }
  // Times are told from where it began to go wrong: the verdict says it, or the oldest op that has not ended.
  const stuck = ops.issued.filter((_, i) => ops.status[i] === FLIGHT);
  const zero = data.at !== null ? data.at : stuck.length ? Math.min(...stuck) : last;
  const pad = Math.max(1, (last - first) * 0.02);
  const LIMITS = [first - pad, last + pad];

  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "soft", "line", "card", "inset", "bad", "open"]) colours[name] = style.getPropertyValue("--" + name).trim();
    colours.kinds = words.name.map((_, i) => style.getPropertyValue("--k" + (i % 8)).trim());
  };
  const hatch = () => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 7;
    const t = tile.getContext("2d");
    t.strokeStyle = colours.open; t.lineWidth = 1.6;
    for (const shift of [-7, 0, 7]) { t.beginPath(); t.moveTo(shift, 7); t.lineTo(shift + 7, 0); t.stroke(); }
    return paint.createPattern(tile, "repeat");
  };
  const xOf = (us) => LEFT + ((us - view[0]) / (view[1] - view[0])) * (width - LEFT);
  const usOf = (x) => view[0] + ((x - LEFT) / (width - LEFT)) * (view[1] - view[0]);
  const shows = (i) => group < 0 || ops.group[i] === group;

  const draw = () => {
    const scale = window.devicePixelRatio || 1, height = TOP + ROW * data.lanes.length + 4;
    width = box.clientWidth;
    canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = height + "px";
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, width, height);
    paint.font = "12px system-ui, sans-serif"; paint.textBaseline = "middle";
    drawAxis(height);
    const pattern = hatch();
    paint.save(); paint.beginPath(); paint.rect(LEFT, TOP, width - LEFT, height - TOP); paint.clip();
    for (let lane = 0; lane < data.lanes.length; lane++) {
      const y = TOP + lane * ROW + 3, h = ROW - 6;
      let filled = -1; // so that thousands of ops in one pixel are one rectangle
      for (const i of byLane[lane] || []) {
        if (!shows(i)) continue;
        const end = endOf(i);
        if (end < view[0] || ops.issued[i] > view[1]) continue;
        const x = xOf(ops.issued[i]), right = Math.max(xOf(end), x + 1.5);
        if (right <= filled && ops.status[i] === OK) continue;
        filled = right;
        const colour = colours.kinds[ops.name[i]], open = ops.status[i] === FLIGHT;
        const begun = ops.started[i] < 0 ? (open || ops.status[i] !== OK ? right : x) : Math.max(x, xOf(ops.started[i]));
        paint.fillStyle = colour; paint.globalAlpha = 0.28; paint.fillRect(x, y, right - x, h);
        paint.globalAlpha = 1;
        if (begun < right) paint.fillRect(begun, y, Math.max(right - begun, 1), h);
        if (open) {
          paint.fillStyle = pattern; paint.globalAlpha = 0.75; paint.fillRect(x, y, right - x, h); paint.globalAlpha = 1;
        } else if (ops.status[i] !== OK) {
          paint.strokeStyle = colours.bad; paint.lineWidth = 2; paint.strokeRect(x + 1, y + 1, Math.max(right - x - 2, 1), h - 2);
        }
        if (right - x > 74 && (ROW > 20 || !open)) {
          paint.save(); paint.beginPath(); paint.rect(x, y, right - x - 4, h); paint.clip();
          const from = Math.max(x, LEFT) + 6;
          if (begun > x + 74) paint.fillStyle = colours.ink;
          else paint.fillStyle = colours.card;
          if (open) { // a calm ground under the words
            const text = paint.measureText(nameOf(i)).width;
            paint.fillStyle = colours.inset; paint.globalAlpha = 0.85; paint.fillRect(from - 4, y + 2, text + 8, h - 4);
            paint.globalAlpha = 1; paint.fillStyle = colours.ink;
          }
          paint.fillText(nameOf(i), from, y + h / 2 + 0.5);
          paint.restore();
        }
      }
    }
    paint.restore();
    if (data.at !== null && xOf(data.at) >= LEFT) {
      const x = Math.round(xOf(data.at)) + 0.5;
      paint.strokeStyle = colours.bad; paint.lineWidth = 1; paint.setLineDash([4, 3]);
      paint.beginPath(); paint.moveTo(x, TOP - 6); paint.lineTo(x, height); paint.stroke(); paint.setLineDash([]);
    }
    canvas.dataset.span = Math.round(view[1] - view[0]);
    // The margins on both sides belong to the picture, not to the run.
    const shown = Math.max(0, Math.min(view[1], last) - Math.max(view[0], first)), whole = last - first;
    $("range").textContent = shown >= whole ? "all " + seconds(whole) + " shown" : seconds(shown) + " shown of " + seconds(whole);
  };

  const drawAxis = (height) => {
    const span = view[1] - view[0], rough = span / Math.max(2, (width - LEFT) / 130);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
    paint.lineWidth = 1;
    for (let lane = 0; lane < data.lanes.length; lane++) {
      const y = TOP + lane * ROW, one = data.lanes[lane];
      paint.strokeStyle = colours.line; paint.globalAlpha = 0.7;
      paint.beginPath(); paint.moveTo(0, y + 0.5); paint.lineTo(width, y + 0.5); paint.stroke(); paint.globalAlpha = 1;
      paint.fillStyle = one.role === "root" ? colours.bad : colours.ink;
      paint.font = (one.role === "root" ? "650 " : "") + "12px system-ui, sans-serif";
      if (one.role === "root") { paint.beginPath(); paint.arc(9, y + ROW / 2, 3.2, 0, 7); paint.fill(); }
      paint.fillText(one.label, 18, y + ROW / 2 + 0.5);
    }
    paint.font = "11px system-ui, sans-serif";
    for (let at = Math.ceil((view[0] - zero) / step) * step; at + zero <= view[1]; at += step) {
      const x = Math.round(xOf(at + zero)) + 0.5;
      if (x < LEFT) continue;
      paint.strokeStyle = colours.line; paint.beginPath(); paint.moveTo(x, TOP - 6); paint.lineTo(x, height); paint.stroke();
      const text = Math.abs(at) < step / 2 ? "0" : (at > 0 ? "+" : "−") + tick(Math.abs(at), step);
      paint.fillStyle = colours.soft;
      if (x + 50 < width) paint.fillText(text, x + 3, TOP / 2);
    }
  };

  let asked = 0;
  const redraw = () => { if (!asked) asked = requestAnimationFrame(() => { asked = 0; draw(); }); };
  const show = (from, to) => {
    const whole = LIMITS[1] - LIMITS[0], span = Math.min(whole, Math.max(5, to - from));
    const begin = Math.min(Math.max(LIMITS[0], (from + to - span) / 2), LIMITS[1] - span);
    view = [begin, begin + span];
    redraw();
  };
  const zoom = (factor, at = (view[0] + view[1]) / 2) => show(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  const move = (share) => { const by = (view[1] - view[0]) * share; show(view[0] + by, view[1] + by); };
  const showAll = () => show(LIMITS[0], LIMITS[1]);
  const showEnd = () => { // the last things that still happened, and the beginning of the silence
    const times = [];
    for (let i = 0; i < count; i++) { times.push(ops.issued[i]); if (ops.ended[i] >= 0) times.push(ops.ended[i]); }
    times.sort((a, b) => a - b);
    const latest = times[times.length - 1];
    const busy = latest - times[Math.max(0, times.length - 1 - Math.max(24, data.lanes.length * 12))];
    const span = Math.max(busy, 1000);
    show(latest - span, Math.min(LIMITS[1], latest + span * 0.6));
  };

  $("in").onclick = () => zoom(0.5);
  $("out").onclick = () => zoom(2);
  $("all").onclick = showAll;
  $("end").onclick = showEnd;
  canvas.addEventListener("keydown", (event) => {
    const act = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.2),
      ArrowRight: () => move(0.2), 0: showAll, f: showEnd }[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { act(); event.preventDefault(); }
  });
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.01), usOf(event.offsetX));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / width);
    else return;
    event.preventDefault();
  }, { passive: false });

  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    grip = { x: event.clientX, view: [...view], moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (grip) {
      const by = ((grip.x - event.clientX) / (width - LEFT)) * (grip.view[1] - grip.view[0]);
      if (Math.abs(event.clientX - grip.x) > 3) { grip.moved = true; canvas.classList.add("drags"); tip.hidden = true; }
      if (grip.moved) show(grip.view[0] + by, grip.view[1] + by);
      return;
    }
    point(event);
  });
  const letGo = (event) => {
    const clicked = grip && !grip.moved && event.type === "pointerup";
    grip = null;
    canvas.classList.remove("drags");
    if (clicked) {
      const i = opAt(event.offsetX, event.offsetY);
      if (i >= 0) { filterBy(data.lanes[ops.lane[i]].label + " " + words.name[ops.name[i]] + " #" + ops.seq[i]); $("table").scrollIntoView({ block: "start" }); }
    }
  };
  canvas.addEventListener("pointerup", letGo);
  canvas.addEventListener("pointercancel", letGo);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

  const opAt = (x, y) => {
    const lane = Math.floor((y - TOP) / ROW);
    let best = -1, near = 4;
    for (const i of byLane[lane] || []) {
      if (!shows(i)) continue;
      const from = xOf(ops.issued[i]), to = Math.max(xOf(endOf(i)), from + 1.5);
      const away = x < from ? from - x : x > to ? x - to : 0;
      if (x >= LEFT && away < near || (away === 0 && best >= 0 && x >= LEFT)) { best = i; near = Math.max(away, 0.01); }
    }
    return best;
  };
  const point = (event) => {
    const i = opAt(event.offsetX, event.offsetY), lane = data.lanes[Math.floor((event.offsetY - TOP) / ROW)];
    let text = "";
    if (i >= 0) text = describe(i);
    else if (lane && event.offsetX < LEFT) text = lane.label + (lane.host ? " on " + lane.host : "") + "\n" + lane.role + ": " + lane.state;
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const y = event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18;
    tip.style.left = Math.max(4, x) + "px"; tip.style.top = y + "px";
  };
  const describe = (i) => {
    const lane = data.lanes[ops.lane[i]], site = words.site[ops.site[i]], label = words.group[ops.group[i]];
    const lines = [lane.label + ": " + nameOf(i) + (label ? " on group '" + label + "'" : "")];
    if (site) lines.push("at " + site);
    const state = words.status[ops.status[i]];
    if (ops.status[i] === FLIGHT) lines.push("has not ended, " + seconds(data.now - ops.issued[i]) + " so far");
    else if (ops.ended[i] >= 0) {
      const wait = ops.started[i] < 0 ? "" : ": waited " + seconds(ops.started[i] - ops.issued[i]) + ", moved data " + seconds(ops.ended[i] - ops.started[i]);
      lines.push((state === "ok" ? "took " : state + " after ") + seconds(ops.ended[i] - ops.issued[i]) + wait);
    }
    if (ops.bytes[i]) lines.push(nbytes(ops.bytes[i]));
    return lines.join("\n");
  };

  const item = (parent, background, text, outline = "") => {
    const entry = document.createElement("span"), swatch = document.createElement("i");
    swatch.style.background = background;
    swatch.style.outline = outline;
    entry.append(swatch, text);
    parent.append(entry);
  };
  const legend = () => {
    const place = $("legend");
    place.textContent = "";
    words.name.slice(0, 12).forEach((name, i) => item(place, colours.kinds[i], name));
    item(place, `color-mix(in srgb, ${colours.kinds[0]} 28%, transparent)`, "waits for others");
    item(place, `repeating-linear-gradient(135deg, ${colours.open} 0 2px, transparent 2px 5px)`, "has not ended");
    item(place, "transparent", "failed", `2px solid ${colours.bad}`);
  };
  const choice = $("group");
  for (const [label, value] of [["all", -1], ...words.group.map((label, i) => [label || "none", i])]) {
    const option = document.createElement("option");
    option.textContent = label; option.value = value;
    choice.append(option);
  }
  choice.onchange = () => { group = Number(choice.value); redraw(); fill(); };

  // ------------------------------------------------------------------------------------ table
  const HEADS = [
    ["rank", (i) => data.lanes[ops.lane[i]].rank, (i) => data.lanes[ops.lane[i]].label],
    ["op", (i) => words.name[ops.name[i]], (i) => words.name[ops.name[i]]],
    ["#", (i) => ops.seq[i], (i) => (isMessage(i) ? "" : "#") + ops.seq[i], "n"],
    ["group", (i) => words.group[ops.group[i]], (i) => words.group[ops.group[i]]],
    ["peer", (i) => ops.peer[i], (i) => (ops.peer[i] < 0 ? "" : String(ops.peer[i])), "n"],
    ["issued", (i) => ops.issued[i], (i) => (ops.issued[i] < zero ? "−" : "+") + seconds(Math.abs(ops.issued[i] - zero)), "n"],
    ["waited", (i) => (ops.started[i] < 0 ? (ops.status[i] === FLIGHT ? data.now - ops.issued[i] : -1) : ops.started[i] - ops.issued[i]),
      (i, v) => (v < 0 ? "" : seconds(v)), "n"],
    ["took", (i) => (ops.ended[i] < 0 ? -1 : ops.ended[i] - ops.issued[i]), (i, v) => (v < 0 ? "" : seconds(v)), "n"],
    ["bytes", (i) => ops.bytes[i], (i, v) => (v ? nbytes(v) : ""), "n"],
    ["state", (i) => words.status[ops.status[i]], (i) => words.status[ops.status[i]]],
    ["site", (i) => words.site[ops.site[i]], (i) => words.site[ops.site[i]]],
  ];
  const table = $("ops"), field = $("filter");
  let sorted = { column: 5, down: true }, limit = 200;
  const head = document.createElement("tr");
  HEADS.forEach(([name, , , kind], column) => {
    const cell = document.createElement("th"), button = document.createElement("button");
    button.textContent = name;
    if (kind) cell.className = kind;
    button.onclick = () => { sorted = { column, down: sorted.column === column ? !sorted.down : false }; fill(); };
    cell.append(button);
    head.append(cell);
  });
  table.tHead.append(head);

  // "rank 3" is rank 3 and not rank 31; "#4" is op 4; other words may stand anywhere in the row
  const matcher = (text) => {
    const tests = [];
    let rest = text.toLowerCase();
    rest = rest.replace(/\brank\s+(\d+)\b/g, (_, n) => { tests.push((i) => data.lanes[ops.lane[i]].rank === Number(n)); return " "; });
    rest = rest.replace(/#(\d+)\b/g, (_, n) => { tests.push((i) => ops.seq[i] === Number(n)); return " "; });
    for (const word of rest.split(/\s+/).filter(Boolean)) tests.push((i) => rowText(i).includes(word));
    return (i) => tests.every((test) => test(i));
  };
  const texts = [];
  const rowText = (i) => (texts[i] ||= HEADS.map(([, value, form]) => form(i, value(i))).join(" ").toLowerCase());
  const fill = () => {
    const fits = matcher(field.value), rows = [];
    for (let i = 0; i < count; i++) if (shows(i) && fits(i)) rows.push(i);
    const value = HEADS[sorted.column][1], sign = sorted.down ? -1 : 1;
    rows.sort((a, b) => { const x = value(a), y = value(b); return (x < y ? -1 : x > y ? 1 : a - b) * sign; });
    const body = document.createDocumentFragment();
    for (const i of rows.slice(0, limit)) {
      const row = document.createElement("tr");
      for (const [name, of, form, kind] of HEADS) {
        const cell = document.createElement("td");
        cell.textContent = form(i, of(i));
        cell.className = [kind || "", name === "state" && ops.status[i] !== OK ? "bad" : ""].join(" ").trim();
        row.append(cell);
      }
      body.append(row);
    }
    table.tBodies[0].replaceChildren(body);
    [...head.cells].forEach((cell, column) => {
      if (column === sorted.column) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    $("count").textContent = Math.min(limit, rows.length) + " of " + rows.length + " rows";
    $("more").hidden = rows.length <= limit;
  };
  const filterBy = (text) => { field.value = text; limit = 200; fill(); };
  field.oninput = () => { limit = 200; fill(); };
  $("clear").onclick = () => filterBy("");
  $("more").onclick = () => { limit += 500; fill(); };

  // ------------------------------------------------------------------------------------ begin
  const dress = () => { readColours(); legend(); redraw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dress);
  new ResizeObserver(redraw).observe(box);
  window.addEventListener("beforeprint", draw);
  readColours();
  legend();
  width = box.clientWidth;
  showAll();
  const silence = last - Math.max(...ops.issued, ...ops.ended);
  if (silence > 0.5 * (last - first)) showEnd();
  fill();
  document.documentElement.dataset.ready = "yes";
})();
