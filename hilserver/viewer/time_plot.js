// Curves over time, one pane for each unit: shows what Python sends, and tells it which section is visible.
import { echarts } from "nicegui-echart";

const CURSORS = ["#be185d", "#0f4c81"];
const MARKS = { fault: "#b91c1c", lost: "#b91c1c", switch: "#7c3aed", note: "#c2410c", trigger: "#0e7490", mode: "#15803d", command: "#586579" };
const LETTER = 13; // pixels that the words beside a line need
const GRIP = 6; // pixels beside a cursor at which it can be taken
const PANE = { left: 70, right: 18, first: 30, gap: 26 };

// Points arrive as the bytes of float64, little endian: time, value, time, value, ...
function decoded(text) {
  return new Float64Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}

// Seconds with as many digits as the visible section needs; hours, minutes and seconds for long ones.
function clock(time, span) {
  if (span < 300) return time.toFixed(Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(span)))));
  const sign = time < 0 ? "−" : "", s = Math.abs(Math.round(time));
  const two = (number) => String(number).padStart(2, "0");
  return `${sign}${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

// Whether the words of a moment stand on the right of its line.
const below = (kind) => kind === "command" || kind === "note";

export default {
  template: "<div></div>",

  mounted() {
    this.chart = echarts.init(this.$el);
    this.cursor = 0;
    this.observer = new ResizeObserver(() => {
      this.chart.resize();
      if (this.shown) this.tell();
    });
    this.observer.observe(this.$el);
    this.chart.on("datazoom", () => this.tell());
    const mouse = this.chart.getZr();
    mouse.on("click", (event) => this.place(event));
    mouse.on("mousedown", (event) => this.grip(event));
    mouse.on("mousemove", (event) => this.drag(event));
    mouse.on("mouseup", (event) => this.release(event));
  },

  unmounted() {
    this.observer.disconnect();
    this.chart.dispose();
  },

  methods: {
    // Everything anew: panes, curves, section.
    draw(message) {
      this.shown = message;
      this.still = false;
      this.visible = message.section[1] - message.section[0]; // for the texts of the axis, which are made while drawing
      this.$el.style.height = `${Math.max(380, 60 + 170 * message.panes.length)}px`;
      this.chart.resize();
      this.chart.setOption(this.options(message), true);
      this.tell();
    },

    // The points of the visible section; number tells which request they answer.
    points(message) {
      if (!this.shown || message.number !== this.number) return;
      this.answered = message.number;
      const series = message.points.map((points, k) => ({ id: `curve${k}`, data: decoded(points) }));
      this.lines = message;
      this.chart.setOption({ series: [...series, ...this.marks(message.marks, this.held(message.cursors))] });
    },

    show_lines(lines) {
      this.lines = lines;
      if (this.shown) this.chart.setOption({ series: this.marks(lines.marks, this.held(lines.cursors)) });
    },

    choose(cursor) {
      this.cursor = cursor;
    },

    // Show this section, or everything.
    zoom(begin, end) {
      this.chart.dispatchAction({ type: "dataZoom", startValue: begin, endValue: end });
    },

    section() {
      const [first, last] = this.shown.extent;
      const at = (pixel) => this.chart.convertFromPixel({ xAxisIndex: 0 }, pixel);
      return [Math.max(at(PANE.left), first), Math.min(at(this.chart.getWidth() - PANE.right), last)];
    },

    tell() {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => {
        const [begin, end] = this.section();
        this.visible = end - begin;
        this.number = (this.number || 0) + 1;
        const pixels = Math.max(50, Math.round(this.chart.getWidth() - PANE.left - PANE.right));
        this.$emit("section", { begin, end, pixels, number: this.number });
      }, 30);
    },

    // The cursor at this place of the mouse, or null.
    near({ offsetX, offsetY }) {
      if (!this.lines || !this.inside(offsetX, offsetY)) return null;
      const distance = this.lines.cursors.map((time) =>
        time === null ? Infinity : Math.abs(this.chart.convertToPixel({ xAxisIndex: 0 }, time) - offsetX));
      const nearest = distance[1] < distance[0] ? 1 : 0;
      return distance[nearest] <= GRIP ? nearest : null;
    },

    inside(x, y) {
      return Boolean(this.shown?.panes.some((_, k) => this.chart.containPixel({ gridIndex: k }, [x, y])));
    },

    // Over a cursor the mouse takes it, instead of moving the section.
    grip(event) {
      const cursor = this.near(event);
      this.moves_section(cursor === null);
      this.dragged = cursor === null ? null : { cursor, time: this.lines.cursors[cursor] };
    },

    drag(event) {
      if (!this.dragged) {
        const near = this.near(event) !== null;
        this.moves_section(!near);
        if (near) this.chart.getZr().setCursorStyle("ew-resize");
        return;
      }
      const [begin, end] = this.section();
      const time = this.chart.convertFromPixel({ xAxisIndex: 0 }, event.offsetX);
      this.dragged.time = Math.min(Math.max(time, begin), end);
      this.dragged.moved = true;
      this.chart.setOption({ series: this.marks(this.lines.marks, this.held(this.lines.cursors)) });
      if (Date.now() - (this.told || 0) > 100) this.tell_cursor();
    },

    release() {
      if (this.dragged?.moved) this.tell_cursor();
      this.dragged = null;
    },

    tell_cursor() {
      this.told = Date.now();
      this.$emit("place", { cursor: this.dragged.cursor, time: this.dragged.time });
    },

    // The cursors, of which the one that is held stays where the mouse is.
    held(cursors) {
      return cursors.map((time, k) => (this.dragged?.cursor === k ? this.dragged.time : time));
    },

    moves_section(moves) {
      if (this.still === !moves) return;
      this.still = !moves;
      this.chart.setOption({ dataZoom: [{ moveOnMouseMove: moves }] });
    },

    // A click places the chosen cursor, with Shift the other one.
    place({ offsetX, offsetY, event }) {
      if (!this.inside(offsetX, offsetY)) return;
      const time = this.chart.convertFromPixel({ xAxisIndex: 0 }, offsetX);
      this.$emit("place", { cursor: event.shiftKey ? 1 - this.cursor : this.cursor, time });
    },

    options({ panes, series, extent, section }) {
      const count = panes.length || 1;
      const height = (this.$el.clientHeight - PANE.first - 44 - PANE.gap * (count - 1)) / count;
      this.height = height;
      const top = (k) => PANE.first + k * (height + PANE.gap);
      const zoom = { xAxisIndex: "all", filterMode: "none", throttle: 30, startValue: section[0], endValue: section[1] };
      const label = (time) => clock(time, Math.max(this.visible, 1e-6));
      const keys = panes.map((pane, k) => ({
        data: series.filter((curve) => curve.pane === k).map((curve) => curve.name),
        top: top(k) - 24, left: PANE.left + 60 + 8 * pane.title.length, right: 10, type: "scroll", itemWidth: 16, itemHeight: 3, icon: "rect",
      }));
      return {
        animation: false,
        textStyle: { fontFamily: "Roboto, sans-serif" },
        title: panes.map(({ title }, k) => ({
          text: title, top: top(k) - 26, left: PANE.left + 10, textStyle: { fontSize: 13, fontWeight: "bold" },
        })),
        legend: keys,
        grid: Array.from({ length: count }, (_, k) => ({ ...PANE, top: top(k), height })),
        xAxis: Array.from({ length: count }, (_, k) => ({
          type: "value", gridIndex: k, min: extent[0], max: extent[1],
          axisLabel: { show: k === count - 1, formatter: label, hideOverlap: true, showMinLabel: false, showMaxLabel: false },
          splitLine: { lineStyle: { color: "#f1f5f9" } }, axisPointer: { label: { show: false } },
        })),
        yAxis: Array.from({ length: count }, (_, k) => ({
          type: "value", gridIndex: k, scale: true, name: panes[k]?.unit || "", nameGap: 8,
          nameTextStyle: { align: "right" }, splitLine: { lineStyle: { color: "#e2e8f0" } },
        })),
        dataZoom: [{ type: "inside", ...zoom }, { type: "slider", ...zoom, height: 16, bottom: 4, showDataShadow: false, brushSelect: false, labelFormatter: label }],
        series: [
          ...series.map((curve, k) => ({
            id: `curve${k}`, name: curve.name, type: "line", xAxisIndex: curve.pane, yAxisIndex: curve.pane,
            showSymbol: false, silent: true, color: curve.colour, lineStyle: { width: 1.3, type: curve.dash }, data: [],
          })),
          ...this.marks([], [null, null]),
        ],
      };
    },

    // Which moments have room for their words, so that none lie on one another: faults first, then the earlier one.
    readable(moments) {
      if (!moments.length) return new Set();
      const [begin, end] = this.section(), space = this.chart.getWidth() - PANE.left - PANE.right;
      const place = ({ time, kind }) => ((time - begin) / (end - begin)) * space + (below(kind) ? LETTER : 0);
      const ranks = Object.keys(MARKS), rank = ({ kind }) => (ranks.indexOf(kind) + ranks.length + 1) % (ranks.length + 1);
      const order = moments.map((_, k) => k).sort((a, b) => rank(moments[a]) - rank(moments[b]) || moments[a].time - moments[b].time);
      const places = [];
      return new Set(order.filter((k) => {
        const here = place(moments[k]);
        return places.every((other) => Math.abs(other - here) >= LETTER) && places.push(here);
      }));
    },

    // What happened, and the cursors, as vertical lines in all panes; their words in the first.
    marks(moments, cursors) {
      const room = Math.floor((this.height || 200) / 6); // letters beside a line
      const readable = this.readable(moments);
      const lines = [
        ...moments.map(({ time, kind, text }, k) => ({
          xAxis: time, lineStyle: { color: MARKS[kind] || "#586579", type: "dashed", width: 1 }, name: text,
          label: { color: MARKS[kind] || "#586579", fontSize: 10, position: below(kind) ? "insideEndBottom" : "insideEndTop", formatter: readable.has(k) ? text.slice(0, room) : "" },
        })),
        ...cursors.map((time, k) => ({
          xAxis: time, lineStyle: { color: CURSORS[k], type: "solid", width: 1.6 },
          label: { color: CURSORS[k], fontWeight: "bold", fontSize: 13, position: "insideEndTop", formatter: `${k + 1}` },
        })).filter((line) => line.xAxis !== null),
      ];
      return (this.shown?.panes.length ? this.shown.panes : [null]).map((_, k) => ({
        id: `marks${k}`, type: "line", xAxisIndex: k, yAxisIndex: k, data: [], silent: true,
        markLine: {
          silent: true, symbol: "none", animation: false,
          data: lines.map((line) => ({ ...line, label: { ...line.label, show: k === 0 } })),
        },
      }));
    },

    save(kind, name) {
      saveChart(this.chart, kind, name);
    },

    // Another chart of the page, by the id of its element.
    save_other(id, kind, name) {
      saveChart(getElement(id).chart, kind, name);
    },
  },
};

// The picture as a file: pixels for a mail, SVG for a report.
function saveChart(chart, kind, name) {
  const link = document.createElement("a");
  link.download = `${name}.${kind}`;
  if (kind === "svg") {
    const size = { width: chart.getWidth(), height: chart.getHeight() };
    const drawing = echarts.init(null, null, { renderer: "svg", ssr: true, ...size });
    drawing.setOption({ ...chart.getOption(), backgroundColor: "#fff" });
    link.href = URL.createObjectURL(new Blob([drawing.renderToSVGString()], { type: "image/svg+xml" }));
    drawing.dispose();
  } else {
    link.href = chart.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: "#fff" });
  }
  link.click();
}
