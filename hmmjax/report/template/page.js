"use strict";
// Boxes that are wider than the screen say that they scroll sideways, and are reached with the keyboard.
(() => {
  function check(box) {
    const wide = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("more", wide);
    for (const [key, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", `${box.dataset.name}, scrolls sideways`]]) {
      if (wide) box.setAttribute(key, value); else box.removeAttribute(key);
    }
  }
  const watch = new ResizeObserver((entries) => entries.forEach((entry) => check(entry.target)));
  document.querySelectorAll(".scroll").forEach((box) => watch.observe(box));
  // On paper everything is unfolded.
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
