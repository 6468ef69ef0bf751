"""What of a page is cut off: text that its box does not show, and controls that can't be seen or reached."""

from __future__ import annotations

from playwright.sync_api import Page

_SHARED = """
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
    e.getBoundingClientRect().width > 0
  const on_top = () => {
    for (const layer of [".q-menu", ".q-dialog .card"]) {
      const found = [...document.querySelectorAll(layer)].filter(shown)
      if (found.length) return found
    }
    return []
  }
  const named = (e) => `${e.tagName.toLowerCase()} "${(e.value || e.textContent || "").trim().slice(0, 40)}"`
"""

_CUT = f"""() => {{{_SHARED}
  const wrong = new Set()
  const parts = "button, input, textarea, a, label, td, th, .now, .title, .about, .wrong, .note, .q-field__native span"
  const above = function* (e) {{ for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) yield p }}
  const wide = (p) => p.matches(".q-tabs__content, pre, .schematic-view") && p.scrollWidth > p.clientWidth + 1
  const places = on_top()
  for (const place of places.length ? places : [document.body])
    for (const e of [...place.querySelectorAll(parts)].filter(shown)) {{
      if (e.closest("svg, #stop") || [...above(e)].some(wide)) continue
      const box = e.getBoundingClientRect(), style = getComputedStyle(e)
      if (box.left < -1 || box.right > innerWidth + 1)
        wrong.add(`${{named(e)}} reaches from ${{box.left}} to ${{box.right}} of ${{innerWidth}}`)
      if ((style.overflowX !== "visible" || e.matches("input, textarea")) && e.scrollWidth > e.clientWidth + 1)
        wrong.add(`${{named(e)}} shows ${{e.clientWidth}} of ${{e.scrollWidth}} pixels`)
      const cuts = [...above(e)].find((p) => {{
        const edge = p.getBoundingClientRect()
        const hides = getComputedStyle(p).overflowX !== "visible"
        return hides && (box.left < edge.left - 1 || box.right > edge.right + 1)
      }})
      if (cuts) wrong.add(`${{named(e)}} is cut by ${{cuts.className}}`)
    }}
  return [...wrong]
}}"""

_HIDDEN = f"""() => {{{_SHARED}
  const wrong = []
  for (const place of on_top())
    for (const e of [...place.querySelectorAll("button, input, textarea")].filter(shown)) {{
      e.scrollIntoView({{ block: "center" }})
      const box = e.getBoundingClientRect()
      const there = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2)
      if (!there || !(e.closest(".q-field") || e).contains(there))
        wrong.push(`${{named(e)}} is behind ${{there ? there.className : "nothing"}}`)
    }}
  return wrong
}}"""


_AT_REST = """(frames) => {
  const moves = document.getAnimations().some((each) =>
    each.playState === "running" && each.effect.getComputedTiming().iterations !== Infinity)
  const comes_or_goes = document.querySelector("[class*='-enter-active'], [class*='-leave-active']")
  window.at_rest = moves || comes_or_goes ? 0 : (window.at_rest ?? 0) + 1
  return window.at_rest > frames
}"""
REST = 20
"""Frames one after the other in which nothing moves: then dialogs and menus are in their place."""


def cut_off(page: Page) -> list[str]:
    """What is cut off in the open dialogs and menus, or in the page where none is open, in words."""
    page.evaluate("window.at_rest = 0")
    page.wait_for_function(_AT_REST, arg=REST, polling="raf")
    found: list[str] = page.evaluate(_CUT)
    hidden: list[str] = page.evaluate(_HIDDEN)
    return found + hidden
