// Values that change several times a second go from here directly into texts, lines and charts.
window.panel = (() => {
  const charts = new Map(); // by id of the element
  const found = new Map(); // elements by selector, looked up once
  const known = { texts: {}, lines: {}, bars: {} }; // the latest values, for elements that come later

  function elements(attribute, name) {
    const selector = `[${attribute}="${CSS.escape(name)}"]`;
    let list = found.get(selector);
    if (!list || !list.length || !list[0].isConnected) {
      list = [...document.querySelectorAll(selector)];
      found.set(selector, list);
    }
    return list;
  }

  function texts(values) {
    for (const [name, text] of Object.entries(values))
      for (const element of elements("data-value", name)) {
        if (!element.firstChild) element.append("");
        element.firstChild.data = text;
      }
  }

  function lines(colours) {
    for (const [name, colour] of Object.entries(colours))
      for (const element of elements("data-line", name)) element.style.setProperty("--oil", colour);
  }

  function bars(values) {
    for (const [name, share] of Object.entries(values))
      for (const element of elements("data-bar", name)) {
        element.style.left = `${share < 0 ? 50 * (1 + share) : 50}%`;
        element.style.width = `${50 * Math.abs(share)}%`;
      }
  }

  function show(values) {
    if (values.texts) texts(values.texts);
    if (values.lines) lines(values.lines);
    if (values.bars) bars(values.bars);
  }

  // Shows the latest values again: elements were replaced. The page's framework calls it after it has done so, which on
  // a slow machine may be seconds after the values of these elements have arrived.
  function again() {
    found.clear();
    show(known);
  }

  // The points of a channel in the layout that ECharts uses without copying: time, value, time, value, ...
  class Points {
    constructor() {
      this.all = new Float64Array(1024);
      this.begin = this.end = 0;
    }

    push(time, value) {
      if (this.end === this.all.length) this.makeRoom();
      this.all[this.end++] = time;
      this.all[this.end++] = value ?? NaN;
    }

    makeRoom() {
      const kept = this.kept();
      const room = 2 * kept.length > this.all.length ? new Float64Array(2 * this.all.length) : this.all;
      room.set(kept);
      this.all = room;
      this.begin = 0;
      this.end = kept.length;
    }

    dropBefore(time) {
      while (this.begin < this.end && this.all[this.begin] < time) this.begin += 2;
    }

    kept() {
      return this.all.subarray(this.begin, this.end);
    }
  }

  // Adds samples to a chart; with options it is restarted. It keeps only the latest seconds.
  function extend(id, message) {
    if (message.options) {
      const channels = message.options.series.map(() => new Points());
      charts.set(id, { ...message, channels, last: NaN, waiting: false, free: 0 });
    }
    const chart = charts.get(id);
    if (!chart) return;
    const times = message.times.map((time) => 1000 * time);
    if (times.length) chart.last = times[times.length - 1];
    chart.channels.forEach((points, k) => {
      times.forEach((time, i) => points.push(time, message.columns[k][i]));
      points.dropBefore(chart.last - 1000 * chart.seconds);
    });
    schedule(id, chart);
  }

  // Drawing takes at most a third of the time, however slow the machine is.
  function schedule(id, chart) {
    if (chart.waiting) return;
    chart.waiting = true;
    const wait = Math.max(0, chart.free - performance.now());
    setTimeout(() => requestAnimationFrame(() => {
      chart.waiting = false;
      if (charts.get(id) !== chart) return;
      const began = performance.now();
      draw(id, chart);
      const end = performance.now();
      chart.free = end + 2 * (end - began);
    }), wait);
  }

  // The time of day; empty at the edges of the window, where it is not round: the browser keeps each text it draws.
  function clock(time) {
    if (time % 10) return "";
    const second = new Date(time).toTimeString().slice(0, 8);
    return time % 1000 ? `${second}.${String(time % 1000).padStart(3, "0")}` : second;
  }

  // NiceGUI may set the options of its element, which are empty, once more after those of a message: without axes, a
  // chart can't be drawn any more. From now on only this page sets them.
  function takeOver(drawn) {
    drawn.setOptionOfPage ??= drawn.setOption;
    drawn.setOption = () => {};
  }

  function draw(id, chart) {
    const drawn = getElement(id)?.chart;
    if (!drawn) return schedule(id, chart); // not there yet
    takeOver(drawn);
    if (chart.options) {
      chart.options.xAxis.axisLabel.formatter = clock;
      const zoom = drawn.getOption()?.dataZoom?.[0];
      for (const axis of chart.options.yAxis) Object.assign(axis, atLeast(axis.least));
      drawn.setOptionOfPage(chart.options, true);
      if (zoom) drawn.dispatchAction({ type: "dataZoom", start: zoom.start, end: zoom.end });
      drawn.group = chart.group;
      drawn.getZr().setSleepAfterStill(1); // its usual ten frames without a change would never end
      chart.options = null;
    }
    const time = isNaN(chart.last) ? {} : { min: chart.last - 1000 * chart.seconds, max: chart.last };
    drawn.setOptionOfPage({ xAxis: time, series: chart.channels.map((points) => ({ data: points.kept() })) });
  }

  // Limits of an axis: chosen by the chart, except for a signal that hardly moves, whose noise should look like noise.
  // They are round, since the chart writes them.
  function atLeast(span) {
    const step = 10 ** Math.floor(Math.log10(span / 5));
    const round = (limit) => Number((Math.ceil(limit / step) * step).toPrecision(9));
    const end = (side) => ({ min, max }) => (max - min < span ? side * round((side * (min + max) + span) / 2) : null);
    return { min: end(-1), max: end(1) };
  }

  // The charts of a tab zoom together.
  import("nicegui-echart").then(({ echarts }) => ["Plots"].forEach(echarts.connect));

  function unzoom(group) {
    for (const [id, chart] of charts)
      if (chart.group === group) getElement(id)?.chart.dispatchAction({ type: "dataZoom", start: 0, end: 100 });
  }

  function save(id) {
    const drawn = getElement(id).chart;
    drawn.setOptionOfPage({ legend: { show: true } });
    const link = document.createElement("a");
    link.href = drawn.getDataURL({ pixelRatio: 2, backgroundColor: "#fff" });
    link.download = "plot.png";
    link.click();
    drawn.setOptionOfPage({ legend: { show: false } });
  }

  // Emits "press" when a button is pressed, "held" repeatedly while it is, and "release".
  function hold(event, emit) {
    if (event.button) return; // not the main one: a menu may swallow its release
    emit("press");
    const again = setInterval(() => emit("held"), 150);
    whenReleased(event, () => {
      clearInterval(again);
      emit("release");
    });
  }

  // Emits true when a slider is taken, with the pointer or with a key that moves it, and false when it is released.
  function grip(event, emit) {
    const moves = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown"];
    if (event.type === "keydown" ? event.repeat || !moves.includes(event.key) : event.button) return;
    emit(true);
    whenReleased(event, () => emit(false));
  }

  // Calls an action once when what has been pressed here is released, for whatever reason; also where the element or
  // the window is hidden meanwhile.
  function whenReleased(event, action) {
    const byKey = event.type === "keydown";
    const once = new AbortController();
    const mine = (ended) => (byKey ? ended.key === event.key : ended.pointerId === event.pointerId);
    const listen = (target, type, counts) =>
      target.addEventListener(type, (ended) => {
        if (!counts(ended)) return;
        once.abort();
        action();
      }, { capture: true, signal: once.signal });
    for (const type of byKey ? ["keyup"] : ["pointerup", "pointercancel"]) listen(window, type, mine);
    listen(window, "blur", (ended) => ended.target === window);
    if (byKey) listen(event.currentTarget, "focusout", () => true);
    else event.currentTarget.setPointerCapture(event.pointerId); // also outside of the window
  }

  // A click on a name above a chart hides its line, a second click shows it again.
  document.addEventListener("click", (event) => {
    const key = event.target.closest("[data-series]");
    if (!key) return;
    const [id, name] = key.dataset.series.split(/:(.*)/s);
    getElement(Number(id)).chart.dispatchAction({ type: "legendToggleSelect", name });
    key.classList.toggle("off");
  });

  function update(message) {
    window.link.hear(message.link);
    show(message);
    for (const kind of Object.keys(known)) Object.assign(known[kind], message[kind]);
    for (const id of Object.keys(message.gone || {})) charts.delete(Number(id)); // else it is waited for
    for (const [id, chart] of Object.entries(message.charts || {})) extend(Number(id), chart);
  }

  // The style sheet's script scans the page whenever an element or a class changes and keeps performance entries of
  // this. Hence numbers change only the data of a text, charts draw their own tooltips, and the entries are cleared.
  setInterval(() => {
    performance.clearMarks();
    performance.clearMeasures();
  }, 10_000);

  return { update, again, unzoom, save, hold, grip, charts };
})();
