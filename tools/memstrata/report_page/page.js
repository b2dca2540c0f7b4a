"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colours = ["--s0", "--s1", "--s2", "--s3", "--s4"].map((name) => `var(${name})`);
  const dashes = ["", "7 3", "2 3", "9 3 2 3", "4 2"];

  // ---- numbers for people -------------------------------------------------------------------------------
  const digits = (value) => {
    const size = Math.abs(value);
    return value.toFixed(size >= 99.95 || value === 0 ? 0 : size >= 9.995 ? 1 : 2);
  };
  const bytes = (value) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = 0;
    while (value >= 1023.5 && unit + 1 < units.length) {
      value /= 1024;
      unit += 1;
    }
    return `${unit === 0 ? Math.round(value) : digits(value)} ${units[unit]}`;
  };
  const count = (value) => Math.round(value).toLocaleString("en-US");
  const share = (value) => `${(value * 100).toFixed(1)} %`;
  const seconds = (value) => `${value >= 1000 ? count(value) : digits(value)} s`;

  // ---- small helpers over the document ------------------------------------------------------------------
  const drawing = document.getElementById("mark").namespaceURI;
  const svg = (name, attributes = {}) => {
    const element = document.createElementNS(drawing, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const make = (name, text, className) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const swatch = (line) => {
    const picture = svg("svg", { width: 22, height: 8, "aria-hidden": "true" });
    picture.append(svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": 2.5, "stroke-dasharray": line.dash }));
    picture.firstChild.style.stroke = line.colour;
    return picture;
  };

  // ---- ticks: round steps, binary for bytes -------------------------------------------------------------
  const round_step = (span, wanted, base) => {
    const rough = span / wanted;
    if (base === 2) return 2 ** Math.max(0, Math.round(Math.log2(rough)));
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough);
  };
  const ticks = (top, wanted, base) => {
    const step = round_step(top, wanted, base);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
  };

  // ---- one chart: lines {name, t, y, colour, dash, shown}, a unit and an optional limit ----------------------
  class Chart {
    constructor(parent, unit) {
      this.unit = unit;
      this.lines = [];
      this.limit = null;
      this.legend = make("div", undefined, "row legend");
      this.box = make("div", undefined, "chart");
      this.plot = svg("svg", { class: "plot", tabindex: 0, role: "img" });
      this.tip = make("div", undefined, "tip");
      this.tip.hidden = true;
      this.box.append(this.plot, this.tip);
      parent.append(this.legend, this.box);
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerdown", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", () => this.leave());
      this.plot.addEventListener("blur", () => this.leave());
      this.plot.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.draw()).observe(this.box);
    }

    show(lines, limit, title) {
      this.lines = lines;
      this.limit = limit;
      this.plot.setAttribute("aria-label", `${title}; left and right arrow keys read the values`);
      this.legend.replaceChildren(
        ...lines.map((line) => {
          const button = make("button");
          button.type = "button";
          button.setAttribute("aria-pressed", String(line.shown));
          button.append(swatch(line), line.name);
          button.addEventListener("click", () => {
            line.shown = !line.shown;
            button.setAttribute("aria-pressed", String(line.shown));
            this.draw();
          });
          return button;
        }),
      );
      this.draw();
    }

    draw() {
      const width = Math.max(this.box.clientWidth, 240);
      const height = width < 520 ? 220 : 280;
      const visible = this.lines.filter((line) => line.shown);
      const peak = Math.max(0, ...visible.map((line) => line.peak));
      const with_limit = this.limit !== null && this.limit <= peak * 1.6;
      this.top = Math.max(peak, with_limit ? this.limit : 0) * 1.06 || 1;
      if (this.unit === share) this.top = Math.min(this.top, 1);
      this.end = Math.max(1e-9, ...this.lines.map((line) => line.t.at(-1) ?? 0));
      this.left = 66;
      this.right = width - 10;
      this.bottom = height - 24;
      this.upper = 10;
      this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.plot.setAttribute("height", height);
      this.plot.replaceChildren();
      this.axes(width);
      if (with_limit) this.draw_limit();
      for (const line of visible) this.draw_line(line);
      this.cross = svg("line", { class: "cross", y1: this.upper, y2: this.bottom, visibility: "hidden" });
      this.plot.append(this.cross);
    }

    x(time) { return this.left + (time / this.end) * (this.right - this.left); }
    y(value) { return this.bottom - (value / this.top) * (this.bottom - this.upper); }

    axes(width) {
      for (const value of ticks(this.top, 5, this.unit === bytes ? 2 : 10)) {
        if (this.unit === count && value !== Math.round(value)) continue;
        const at = this.y(value);
        this.plot.append(svg("line", { class: "grid", x1: this.left, x2: this.right, y1: at, y2: at }));
        const label = svg("text", { x: this.left - 8, y: at + 4, "text-anchor": "end" });
        label.textContent = this.unit(value);
        this.plot.append(label);
      }
      for (const time of ticks(this.end, width < 520 ? 4 : 7, 10)) {
        const at = this.x(time);
        this.plot.append(svg("line", { class: "axis", x1: at, x2: at, y1: this.bottom, y2: this.bottom + 4 }));
        const anchor = time === 0 ? "start" : at > this.right - 24 ? "end" : "middle";
        const label = svg("text", { x: at, y: this.bottom + 18, "text-anchor": anchor });
        label.textContent = seconds(time);
        this.plot.append(label);
      }
      this.plot.append(svg("line", { class: "axis", x1: this.left, x2: this.right, y1: this.bottom, y2: this.bottom }));
    }

    draw_limit() {
      const at = this.y(this.limit);
      this.plot.append(svg("line", { class: "limit", x1: this.left, x2: this.right, y1: at, y2: at }));
      const label = svg("text", { x: this.right, y: at - 5, "text-anchor": "end" });
      label.textContent = `limit ${this.unit(this.limit)}`;
      label.style.fill = "var(--limit)";
      this.plot.append(label);
    }

    draw_line(line) {
      let path = "";
      for (let i = 0; i < line.t.length; i += 1) {
        if (line.y[i] === null) continue;
        path += `${path === "" ? "M" : "L"}${this.x(line.t[i]).toFixed(1)} ${this.y(line.y[i]).toFixed(1)}`;
      }
      const element = svg("path", { class: "line", d: path, "stroke-dasharray": line.dash });
      element.style.stroke = line.colour;
      this.plot.append(element);
    }

    point(event) {
      const frame = this.plot.getBoundingClientRect();
      this.read(((event.clientX - frame.left - this.left) / (this.right - this.left)) * this.end);
    }

    key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (event.key === "Escape") this.leave();
      if (step === undefined) return;
      event.preventDefault();
      this.read((this.time ?? 0) + (step * this.end) / 200);
    }

    read(time) {
      this.time = Math.min(Math.max(time, 0), this.end);
      const shown = this.lines.filter((line) => line.shown && line.t.length > 0);
      if (shown.length === 0) return this.leave();
      const at = this.x(this.time);
      this.cross.setAttribute("x1", at);
      this.cross.setAttribute("x2", at);
      this.cross.setAttribute("visibility", "visible");
      this.tip.replaceChildren(make("b", `at ${seconds(this.time)}`));
      for (const line of shown) {
        const row = make("span");
        const value = value_at(line, this.time);
        row.append(swatch(line), line.name, make("i", value === null ? "ended" : this.unit(value)));
        this.tip.append(row);
      }
      this.tip.hidden = false;
      const room = this.box.clientWidth - this.tip.offsetWidth;
      const beside = at + 14 > room ? at - this.tip.offsetWidth - 14 : at + 14;
      this.tip.style.left = `${Math.max(0, Math.min(beside, room))}px`;
    }

    leave() {
      this.tip.hidden = true;
      this.time = undefined;
      this.cross?.setAttribute("visibility", "hidden");
    }
  }

  /// The last sample at or before `time`; null once the line has ended.
  const value_at = (line, time) => {
    if (time > line.t.at(-1)) return null;
    let low = 0;
    let high = line.t.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (line.t[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return line.y[low];
  };

  // A policy keeps its colour whatever is beside it; ours is the solid line.
  const policy_order = ["virtual", "paged", "realloc", "reserve-max", "concat"];
  const line_of = (name, policy, key, index) => {
    const style = index < 0 ? 0 : index % colours.length;
    const y = policy.series[key];
    const peak = y.reduce((most, value) => Math.max(most, value ?? 0), 0);
    return { name, t: policy.series.t, y, peak, colour: colours[style], dash: dashes[style], shown: true };
  };

  const policies = data.policies;
  const memory = new Chart(document.getElementById("memory"), bytes);
  const show_policy = (policy) => {
    const lines = ["committed", "live", "cached", "reserved"].map((key, i) => line_of(key, policy, key, i));
    // Reserved address space costs nothing and may dwarf the rest: it starts hidden then.
    if (lines[3].peak > 4 * Math.max(lines[0].peak, 1)) lines[3].shown = false;
    memory.show(lines, data.limit, `Memory over time, ${policy.policy}`);
  };
  const tabs = document.getElementById("policies");
  for (const policy of policies) {
    const button = make("button", policy.policy);
    button.type = "button";
    button.addEventListener("click", () => {
      for (const other of tabs.children) other.setAttribute("aria-pressed", String(other === button));
      show_policy(policy);
    });
    tabs.append(button);
  }
  tabs.hidden = policies.length < 2;
  (([...tabs.children].find((tab) => tab.textContent === "virtual")) ?? tabs.firstChild)?.click();

  const compare = (id, key, unit, limit) => {
    const panel = document.getElementById(id);
    new Chart(panel, unit).show(policies.map((policy) => line_of(policy.policy, policy, key, policy_order.indexOf(policy.policy))), limit, panel.querySelector("h2").textContent);
  };
  const committed = document.getElementById("committed");
  if (policies.length > 1) compare("committed", "committed", bytes, data.limit);
  else committed.hidden = true;
  compare("queue", "queue", count, null);
  compare("hits", "hit_rate", share, null);
})();
