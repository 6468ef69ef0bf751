// Zoom of the schematic: wheel, pinch, buttons, + - 0; moved by dragging or as every page that is larger than its
// window. A drawing that nobody has zoomed fits the page's width, but never becomes too small to be read (circuit.css).
window.zoom = (() => {
  const LARGEST = 4; // pixels for a unit of the drawing
  const STEP = 1.25;
  const SLACK = 4; // pixels by which the mouse may move in a click
  const known = new WeakSet();

  const drawing = (view) => view.querySelector(".schematic");
  const extent = (view) => drawing(view).getBoundingClientRect();
  const unit = (view) => extent(view).width / drawing(view).viewBox.baseVal.width;

  // Sets the scale; what was at one point of the window, in pixels, comes to another one, or stays there.
  function scale(view, wanted, from, to = from) {
    const before = extent(view);
    const x = (from.x - before.left) / before.width;
    const y = (from.y - before.top) / before.height;
    const whole = Math.min(1, view.clientWidth / drawing(view).viewBox.baseVal.width);
    if (!view.classList.contains("zoomed")) view.style.height = `${view.offsetHeight}px`;
    view.classList.add("zoomed");
    view.style.setProperty("--zoom", Math.min(Math.max(wanted, whole), LARGEST));
    const now = extent(view);
    view.scrollLeft += now.left + x * now.width - to.x;
    view.scrollTop += now.top + y * now.height - to.y;
  }

  function fit(view) {
    view.classList.remove("zoomed");
    view.style.removeProperty("--zoom");
    view.style.removeProperty("height");
  }

  function step(view, factor) {
    const box = view.getBoundingClientRect();
    scale(view, factor * unit(view), { x: box.left + box.width / 2, y: box.top + box.height / 2 });
  }

  function wheel(event) {
    const view = event.currentTarget;
    const smaller = event.deltaY > 0;
    const whole = extent(view).width <= view.clientWidth + 1 && extent(view).height <= view.clientHeight + 1;
    if (event.shiftKey || !event.deltaY || (smaller && whole)) return; // the page moves
    event.preventDefault();
    const lines = event.deltaMode ? 30 : 1;
    const factor = STEP ** (-Math.max(-100, Math.min(100, lines * event.deltaY)) / 100);
    scale(view, factor * unit(view), { x: event.clientX, y: event.clientY });
  }

  // By mouse: a finger moves the drawing as it moves a page.
  function drag(event) {
    if (event.pointerType !== "mouse" || event.button > 1) return;
    const view = event.currentTarget;
    const start = { x: event.clientX, y: event.clientY, left: view.scrollLeft, top: view.scrollTop };
    let dragged = false;
    const move = (moved) => {
      const dx = moved.clientX - start.x;
      const dy = moved.clientY - start.y;
      if (!dragged && Math.hypot(dx, dy) < SLACK) return;
      if (!dragged) view.setPointerCapture(event.pointerId);
      dragged = true;
      view.scrollLeft = start.left - dx;
      view.scrollTop = start.top - dy;
    };
    const end = () => {
      view.removeEventListener("pointermove", move);
      view.removeEventListener("pointerup", end);
      view.removeEventListener("pointercancel", end);
      if (!dragged) return;
      const swallow = (click) => click.stopImmediatePropagation();
      view.addEventListener("click", swallow, { capture: true, once: true });
      setTimeout(() => view.removeEventListener("click", swallow, true));
    };
    view.addEventListener("pointermove", move);
    view.addEventListener("pointerup", end);
    view.addEventListener("pointercancel", end);
  }

  // Two fingers: their distance is the scale, their middle takes the drawing along.
  function pinch(event) {
    if (event.touches.length !== 2) return;
    event.preventDefault();
    const view = event.currentTarget;
    const between = (touches) => {
      const [a, b] = touches;
      const middle = { x: (a.clientX + b.clientX) / 2, y: (a.clientY + b.clientY) / 2 };
      return { middle, distance: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) };
    };
    let last = between(event.touches);
    const move = (moved) => {
      if (moved.touches.length !== 2) return;
      moved.preventDefault();
      const now = between(moved.touches);
      scale(view, (unit(view) * now.distance) / last.distance, last.middle, now.middle);
      last = now;
    };
    const end = () => {
      for (const [kind, listener] of [["touchmove", move], ["touchend", end], ["touchcancel", end]])
        view.removeEventListener(kind, listener);
    };
    view.addEventListener("touchmove", move, { passive: false });
    view.addEventListener("touchend", end);
    view.addEventListener("touchcancel", end);
  }

  function key(event) {
    const factor = { "+": STEP, "=": STEP, "-": 1 / STEP, 0: 0 }[event.key];
    if (factor === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (factor) step(event.currentTarget, factor);
    else fit(event.currentTarget);
  }

  // Before a pointer or a key can do anything in a view, it comes over it, or the view gets the focus.
  function meet(event) {
    const view = event.target.closest?.(".schematic-view");
    if (!view || known.has(view)) return;
    known.add(view);
    view.addEventListener("wheel", wheel, { passive: false });
    view.addEventListener("pointerdown", drag);
    view.addEventListener("touchstart", pinch, { passive: false });
    view.addEventListener("keydown", key);
    view.addEventListener("dblclick", (twice) => twice.target.closest("[data-part]") || fit(view));
  }
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, meet, true);

  const views = (action) => () => document.querySelectorAll(".schematic-view").forEach(action);
  return {
    larger: views((view) => step(view, STEP)),
    smaller: views((view) => step(view, 1 / STEP)),
    fit: views(fit),
  };
})();
