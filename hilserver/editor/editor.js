// The drawing with the mouse: parts come from the palette, are moved, and are connected from port to port.
// What was done is told to the server, which changes the file and draws it anew.
window.editor = (() => {
  const SLACK = 4; // pixels by which the pointer may move in a click
  const GRID = 20;
  let swallow = false;

  const sheet = () => document.querySelector(".editor-sheet .schematic");
  const tell = (what, values) => emitEvent("circuit-edit", { what, ...values });

  // A place on the screen as one in the drawing; null outside of it.
  function place(event) {
    const svg = sheet();
    const view = svg?.closest(".schematic-view").getBoundingClientRect();
    const inside = view && event.clientX >= view.left && event.clientX <= view.right &&
      event.clientY >= view.top && event.clientY <= view.bottom;
    if (!inside) return null;
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  }

  // What a line leads to that ends here: the uppermost port, part or line.
  function target(event, handle) {
    for (const element of document.elementsFromPoint(event.clientX, event.clientY)) {
      const found = element.closest(".handle, .wire-hit, .editor-sheet [data-part], [data-machine]");
      if (!found || found === handle) continue;
      const { component, port, node, machine, part } = found.dataset;
      if (port) return { to: [component, port] };
      return node || machine ? { node: node || machine } : { part };
    }
    return null;
  }

  // Follows the pointer until it is released: move(event) once it has moved, end(event, moved).
  function follow(event, move, end) {
    const { clientX, clientY } = event;
    let moved = false;
    const onMove = (now) => {
      moved ||= Math.hypot(now.clientX - clientX, now.clientY - clientY) > SLACK;
      if (moved) move(now);
    };
    const stop = (now, done) => {
      document.removeEventListener("pointermove", onMove);
      document.removeEventListener("pointerup", onUp);
      document.removeEventListener("pointercancel", onCancel);
      document.removeEventListener("keydown", onKey, true);
      swallow = moved;
      setTimeout(() => (swallow = false));
      end(now, moved && done);
    };
    const onUp = (now) => stop(now, true);
    const onCancel = (now) => stop(now, false);
    const onKey = (now) => now.key === "Escape" && stop(now, false);
    document.addEventListener("pointermove", onMove);
    document.addEventListener("pointerup", onUp);
    document.addEventListener("pointercancel", onCancel);
    document.addEventListener("keydown", onKey, true);
  }

  function fromPalette(event, item) {
    const ghost = item.querySelector("svg").cloneNode(true);
    ghost.classList.add("palette-ghost");
    follow(event, (now) => {
      if (!ghost.parentNode) document.body.append(ghost);
      ghost.style.left = `${now.clientX}px`;
      ghost.style.top = `${now.clientY}px`;
    }, (now, dragged) => {
      ghost.remove();
      const at = dragged && place(now);
      if (at) tell("add", { ...item.dataset, x: at.x, y: at.y });
    });
  }

  function movePart(event, part, name) {
    const start = place(event);
    const shown = [...sheet().querySelectorAll("[data-part], [data-machine], .handle")].filter((each) =>
      [each.dataset.part, each.dataset.machine, each.dataset.component].includes(name));
    const by = (now) => {
      const at = place(now);
      return at && { dx: at.x - start.x, dy: at.y - start.y, x: at.x, y: at.y };
    };
    follow(event, (now) => {
      const moved = by(now);
      if (!moved) return;
      const snap = (value) => GRID * Math.round(value / GRID);
      for (const each of shown) each.style.transform = `translate(${snap(moved.dx)}px, ${snap(moved.dy)}px)`;
    }, (now, dragged) => {
      for (const each of shown) each.style.transform = "";
      const moved = dragged && by(now);
      if (moved) tell("move", { name, ...moved });
    });
  }

  function drawLine(event, handle) {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("class", "rubber");
    const circle = handle.querySelector("circle");
    const from = [circle.cx.baseVal.value, circle.cy.baseVal.value];
    const { component, port } = handle.dataset;
    sheet().classList.add("connecting");
    sheet().append(line);
    follow(event, (now) => {
      const at = place(now);
      if (at) line.setAttribute("d", `M${from[0]} ${from[1]}L${at.x} ${at.y}`);
    }, (now, dragged) => {
      line.remove();
      sheet().classList.remove("connecting");
      if (!dragged) return tell("select", { name: component });
      const to = target(now, handle);
      if (to) tell("connect", { component, port, ...to });
    });
  }

  function press(event) {
    if (event.button !== 0) return;
    const item = event.target.closest(".palette-item");
    if (item) return fromPalette(event, item);
    if (!event.target.closest(".editor-sheet") || event.target.closest(".fixed-places")) return;
    const handle = event.target.closest(".handle");
    const part = event.target.closest("[data-part], [data-machine]");
    if (!handle && !part) return; // the sheet is moved (zoom.js)
    event.stopPropagation();
    event.preventDefault();
    document.activeElement?.blur(); // what is being entered is complete
    event.target.closest(".editor-sheet").focus({ preventScroll: true });
    if (handle) drawLine(event, handle);
    else movePart(event, part, part.dataset.part || part.dataset.machine);
  }

  function click(event) {
    if (swallow) return;
    const item = event.target.closest(".palette-item");
    if (item) return tell("add", { ...item.dataset });
    if (!event.target.closest(".editor-sheet") || event.target.closest(".handle")) return;
    const { part, node, mechanism } = event.target.closest("[data-part], [data-node], [data-mechanism]")?.dataset ?? {};
    tell("select", { name: part || (node && `node ${node}`) || (mechanism && `mechanism ${mechanism}`) || "" });
  }

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function key(event) {
    const control = event.ctrlKey || event.metaKey;
    const letter = event.key.toLowerCase();
    const typing = event.target.closest("input, textarea, [contenteditable]");
    const stop = () => event.preventDefault();
    if (control && letter === "s") {
      stop();
      if (typing) document.activeElement.blur(); // what is being entered is complete
      return tell("save", {});
    }
    if (typing) return;
    if (control && letter === "z") return stop(), tell(event.shiftKey ? "redo" : "undo", {});
    if (control && letter === "y") return stop(), tell("redo", {});
    if (control || event.altKey) return;
    const part = event.target.closest(".editor-sheet [data-part]");
    if (event.key === "Enter" && part) {
      part.closest(".editor-sheet").focus({ preventScroll: true }); // the part is drawn anew
      return tell("select", { name: part.dataset.part });
    }
    if (!event.target.closest(".editor-sheet")) return;
    if (event.key === "Delete" || event.key === "Backspace") return stop(), tell("remove", {});
    if (event.key === "Escape") return tell("select", { name: "" });
    const arrow = ARROWS[event.key];
    if (arrow && sheet().querySelector(".selected")) {
      stop();
      tell("nudge", { dx: GRID * arrow[0], dy: GRID * arrow[1] });
    }
  }

  document.addEventListener("pointerdown", press, true);
  document.addEventListener("click", click);
  document.addEventListener("keydown", key, true);
  window.addEventListener("beforeunload", (event) => {
    if (document.querySelector(".editor-unsaved")) event.preventDefault();
  });
  return {};
})();
