// What keeps somebody from using the page as it is now; each function gives the faults that it finds, as texts.
({
  contrast() {
    const parsed = (color) => {
      const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
      return { r, g, b, a };
    };
    const over = (top, below) => {
      const mixed = (one) => top[one] * top.a + below[one] * (1 - top.a);
      return { r: mixed("r"), g: mixed("g"), b: mixed("b"), a: 1 };
    };
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const light = ({ r, g, b }) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const ground = (element) => {
      const colors = [];
      for (let at = element; at; at = at.parentElement) {
        colors.unshift(parsed(getComputedStyle(at).backgroundColor));
        if (colors[0].a === 1) break;
      }
      return colors.reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
    };
    const behind = (element) => {
      const rect = element instanceof SVGElement && element.parentElement.querySelector("rect");
      return rect ? parsed(getComputedStyle(rect).fill) : ground(element.closest("svg")?.parentElement ?? element);
    };
    const faults = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      const text = node.textContent.trim();
      if (!text || element.closest(".unseen, .skip, noscript, title, option")) continue;
      if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      if (!element.getBoundingClientRect().width) continue;
      const style = getComputedStyle(element);
      const below = behind(element);
      const shown = over(parsed(element instanceof SVGElement ? style.fill : style.color), below);
      const [more, less] = [light(shown), light(below)].sort((one, other) => other - one);
      const size = parseFloat(style.fontSize);
      const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
      const ratio = (more + 0.05) / (less + 0.05);
      if (ratio < needed) faults.add(`contrast ${ratio.toFixed(2)}: ${element.tagName} "${text.slice(0, 30)}"`);
    }
    return [...faults];
  },

  targets() {
    const all = [...document.querySelectorAll("button, a[href], input, select, textarea, summary")];
    return all
      .filter((one) => one.checkVisibility({ opacityProperty: true }) && !one.closest(".skip, .unseen"))
      .filter((one) => one.type !== "range" && getComputedStyle(one).display !== "inline")
      .map((one) => ({ one, box: one.getBoundingClientRect() }))
      .filter(({ box }) => box.width > 0 && Math.min(box.width, box.height) < 24)
      .map(({ one, box }) => `small: ${one.tagName}#${one.id}.${one.className} ${box.width}x${box.height}`);
  },

  width() {
    const free = ".unseen, svg, pre, .wide, .about, dialog:not([open])";
    const wide = [...document.querySelectorAll("body *")]
      .filter((one) => one.checkVisibility() && !one.closest(free))
      .filter((one) => one.getBoundingClientRect().width > 0 && one.getBoundingClientRect().right > innerWidth + 1);
    return wide.slice(0, 5).map((one) => `too wide: ${one.tagName}#${one.id}.${one.className}`);
  },

  structure() {
    const faults = [];
    const all = (selector) => [...document.querySelectorAll(selector)];
    const ids = all("[id]").map((one) => one.id);
    ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => faults.push(`two elements are called ${id}`));
    for (const name of ["aria-controls", "aria-labelledby", "for"]) {
      for (const one of all(`[${name}]`)) {
        const id = one.getAttribute(name);
        if (!document.getElementById(id)) faults.push(`${name} points at nothing: ${id}`);
      }
    }
    for (const tag of ["main", "h1"]) if (all(tag).length !== 1) faults.push(`there is not one ${tag}`);
    if (!document.documentElement.lang) faults.push("the language is not named");
    all("img:not([alt]), svg[role=img]:not([aria-label])").forEach(() => faults.push("a picture without a name"));
    all("nav, aside, main").filter((one) => !one.ariaLabel).forEach((one) => faults.push(`${one.tagName} without a name`));
    for (const one of all("body *")) {
      const scrolls = one.scrollHeight > one.clientHeight + 2 && /auto|scroll/.test(getComputedStyle(one).overflowY);
      const reached = one.tabIndex >= 0 || one.querySelector("button, a, input, select, textarea, [tabindex='0']");
      if (scrolls && one.checkVisibility() && !reached) faults.push(`keys cannot scroll ${one.tagName}.${one.className}`);
    }
    return faults;
  },
})
