// STOP, and what the page shows of its link to the rig. Both are outside of the page's framework: no dialog, menu or
// message is above them, and they need nothing of the panel's process to find out that it does not answer.
window.link = (() => {
  const SILENCE = 1500; // ms without a message of the panel after which the link counts as lost
  const OLD = 2000; // the same for messages of the server, which sends at least once per second
  const HOLD = 400; // ms for which a key is held for STOP
  const stop = document.getElementById("stop");
  const hint = stop.querySelector("small");
  const banner = document.getElementById("lost-link");
  let panel = { age: 0, trouble: "", mode: "", alarms: 0, viewer: false }; // as the panel has said last
  let heard = performance.now(); // when
  let known = false; // whether it has said anything yet
  let lost = false;
  const title = document.title;

  // The panel's message: age of the server's latest message in s, what is wrong with the connection, mode, rights.
  function hear(message) {
    panel = message;
    heard = performance.now();
    known = true;
    document.title = (panel.alarms ? `(${panel.alarms}) ` : "") + title;
    look();
  }

  function look() {
    const silent = performance.now() - heard;
    const age = 1000 * panel.age + silent;
    let trouble = panel.trouble;
    if (silent > SILENCE) trouble = "No connection to the panel";
    else if (!trouble && age > OLD) trouble = "The server does not answer";
    show(known && trouble !== "", trouble, age);
  }

  function show(now, trouble, age) {
    if (now !== lost) {
      lost = now;
      document.documentElement.classList.toggle("lost", lost);
      for (const part of document.body.children) if (part !== stop && part !== banner) part.inert = lost;
      banner.hidden = !lost;
    }
    stop.setAttribute("aria-disabled", String(lost || panel.viewer));
    if (!pressed) say(idle(), false);
    if (!lost) return;
    const seconds = age < 10_000 ? (age / 1000).toFixed(1) : (age / 1000).toFixed(0);
    document.documentElement.style.setProperty("--age", `" · ${seconds} s old"`);
    banner.querySelector("b").textContent = trouble;
    banner.querySelector("span").textContent =
      `Values are ${seconds} s old${panel.mode ? `; the last known mode is ${panel.mode}` : ""}. STOP may not reach ` +
      "the rig: use the emergency stop. The panel connects again by itself.";
  }

  function idle() {
    if (lost) return "no connection: use the emergency stop";
    if (panel.viewer) return "this login is read-only";
    return matchMedia("(hover: none)").matches ? "" : "or hold Space or Esc"; // without a mouse there are no keys
  }

  // --- STOP ----------------------------------------------------------------------------------------------------------

  let pressed = 0; // number of presses that are not answered, or were answered a moment ago
  let latest = null; // of their answers, the one of the latest tick: answers may overtake each other

  // Sends the command by a request of its own, which waits for nothing else that the page exchanges with the panel. It
  // is sent even for a login that is thought to be read-only: a server that is slow to answer looks the same.
  async function press() {
    if (!pressed) latest = null;
    pressed += 1;
    stop.classList.add("sent");
    hint.textContent = "sent …";
    const began = performance.now();
    const late = setTimeout(() => say("no answer yet: use the emergency stop", true), 1000);
    try {
      const response = await fetch("stop", { method: "POST", keepalive: true });
      const answer = await response.json();
      const why = panel.viewer ? `${answer.text}; this login is read-only: use the emergency stop` : answer.text;
      if (!answer.ok) say(why, true);
      else {
        const text = `${answer.text} · ${Math.round(performance.now() - began)} ms`;
        if (!(answer.tick < latest?.tick)) latest = { text, tick: answer.tick };
        say(latest.text, false);
      }
    } catch {
      say("not sent: use the emergency stop", true);
    }
    clearTimeout(late);
    stop.classList.remove("sent");
    setTimeout(() => {
      pressed -= 1;
      look();
    }, 4000);
  }

  function say(text, failed) {
    if (hint.textContent !== text) hint.textContent = text;
    stop.classList.toggle("failed", failed);
  }

  // In the capture phase of the window, and when the button goes down: before anything else in the page can take it.
  let byPointer = false, released = null;
  addEventListener("pointerdown", (event) => {
    if (!stop.contains(event.target) || event.button) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    clearTimeout(released); // of a click elsewhere a moment ago: it must not make a second press of this one
    byPointer = true;
    press();
  }, true);
  for (const end of ["pointerup", "pointercancel"])
    addEventListener(end, () => {
      clearTimeout(released);
      released = setTimeout(() => (byPointer = false), 500);
    }, true);
  stop.addEventListener("click", () => byPointer || press()); // by a key, or by a program that reads the page aloud

  // A held key; released before, it does what it always does.
  let holding = null;
  addEventListener("keydown", (event) => {
    if ((event.key !== " " && event.key !== "Escape") || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.repeat) {
      if (holding?.done) event.preventDefault();
      return;
    }
    clearTimeout(holding?.timer);
    holding = { key: event.key, done: false };
    stop.classList.add("held");
    const mine = holding;
    holding.timer = setTimeout(() => {
      mine.done = true;
      stop.classList.remove("held");
      document.activeElement?.blur(); // the key must not press a button when it is released
      press();
    }, HOLD);
  }, true);
  addEventListener("keyup", (event) => {
    if (event.key !== holding?.key) return;
    clearTimeout(holding.timer);
    stop.classList.remove("held");
    if (holding.done) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
    holding = null;
  }, true);

  setInterval(look, 100);
  document.addEventListener("visibilitychange", look);
  return { hear };
})();
