const { unit, names, nodes: flat } = JSON.parse(document.getElementById("data").textContent);
const HEIGHT = 20;
const flame = document.getElementById("flame");
const detail = document.getElementById("detail");
const search = document.getElementById("search");
const found = document.getElementById("found");
const back = document.getElementById("back");

// The whole is a node too: the caller of all that nobody calls.
const root = { name: "all", depth: -1, calls: 0, total: 0, own: 0, caller: null, callees: [], hue: 45 };
const path = [root];
const all = [];
for (let i = 0; i < flat.length; i += 5) {
  const [depth, name, calls, total, own] = flat.slice(i, i + 5);
  path.length = depth + 1;
  const caller = path[depth];
  const node = { name: names[name], depth, calls, total, own, caller, callees: [], hue: hue(names[name]) };
  caller.callees.push(node);
  path.push(node);
  all.push(node);
}
// Without a clock, the width of a bar is the number of calls below it, its own included.
for (const node of all) node.width = unit === "calls" ? node.calls : node.own;
for (const node of all.slice().reverse()) {
  for (const callee of node.callees) node.width += callee.width;
}
for (const node of root.callees) {
  root.width = (root.width || 0) + node.width;
  root.total += node.total;
  root.calls += node.calls;
}
let zoomed = root;
let matches = null;

// A name has the same colour everywhere; warm colours, so that what is found stands out.
function hue(name) {
  let hash = 0;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) | 0;
  return 5 + (Math.abs(hash) % 50);
}

function time(value) {
  if (unit === "ns") {
    if (value < 1e3) return `${value} ns`;
    if (value < 1e6) return `${(value / 1e3).toFixed(3)} us`;
    if (value < 1e9) return `${(value / 1e6).toFixed(3)} ms`;
    return `${(value / 1e9).toFixed(3)} s`;
  }
  return `${value.toLocaleString("en")} ${unit}`;
}

function share(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(1)} %` : "0 %";
}

function words(node) {
  const calls = `${node.calls.toLocaleString("en")} ${node.calls === 1 ? "call" : "calls"}`;
  const times = unit === "calls" ? "" : `, total ${time(node.total)}, self ${time(node.own)}`;
  return `${node.name}: ${calls}${times}, ${share(node.width, root.width)} of all`;
}

function bar(node, left, width, level) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "bar";
  button.tabIndex = -1;
  button.node = node;
  button.setAttribute("role", "treeitem");
  button.setAttribute("aria-level", String(node.depth + 2));
  button.setAttribute("aria-label", words(node));
  button.style.cssText = `left:${left}px;width:${Math.max(width - 1, 1)}px;top:${level * HEIGHT}px;--hue:${node.hue}`;
  if (width > 24) button.textContent = node.name;
  else button.classList.add("thin");
  if (level < zoomed.depth + 1) button.classList.add("outer");
  if (matches && matches(node.name)) button.classList.add("found");
  flame.append(button);
  return button;
}

// Only what is wide enough to be seen is drawn.
function draw(focus) {
  flame.replaceChildren();
  const room = flame.clientWidth;
  const outer = [];
  for (let node = zoomed.caller; node; node = node.caller) outer.unshift(node);
  for (const node of outer) bar(node, 0, room, node.depth + 1);
  const scale = zoomed.width ? room / zoomed.width : 0;
  let deepest = zoomed.depth + 1;
  const todo = [[zoomed, 0]];
  while (todo.length) {
    const [node, left] = todo.pop();
    const width = node === zoomed ? room : node.width * scale;
    if (width < 0.8) continue;
    bar(node, left, width, node.depth + 1);
    deepest = Math.max(deepest, node.depth + 1);
    let at = left;
    for (const callee of node.callees) {
      todo.push([callee, at]);
      at += callee.width * scale;
    }
  }
  flame.style.height = `${(deepest + 1) * HEIGHT}px`;
  back.disabled = zoomed === root;
  const chosen = shown(focus) || shown(zoomed);
  if (chosen) chosen.tabIndex = 0;
  if (chosen && focus) chosen.focus();
}

function shown(node) {
  return [...flame.children].find((button) => button.node === node);
}

function zoom(node, focus) {
  zoomed = node;
  draw(focus ? node : null);
  detail.textContent = words(node);
}

function look() {
  const text = search.value.trim();
  const regex = /^\/(.+)\/$/.exec(text);
  matches = text ? (name) => name.toLowerCase().includes(text.toLowerCase()) : null;
  try {
    const expression = regex && new RegExp(regex[1]);
    if (expression) matches = (name) => expression.test(name);
  } catch {
    matches = () => false;
  }
  // A call within another that fits counts once.
  let width = 0;
  const todo = matches ? [...root.callees] : [];
  while (todo.length) {
    const node = todo.pop();
    if (matches(node.name)) width += node.width;
    else todo.push(...node.callees);
  }
  found.textContent = matches ? share(width, root.width) : "";
  draw(null);
}

flame.addEventListener("click", (event) => {
  const button = event.target.closest(".bar");
  if (button) zoom(button.node, true);
});
flame.addEventListener("mouseover", (event) => {
  const button = event.target.closest(".bar");
  if (button) detail.textContent = words(button.node);
});
flame.addEventListener("focusin", (event) => {
  const button = event.target.closest(".bar");
  if (!button) return;
  for (const other of flame.children) other.tabIndex = -1;
  button.tabIndex = 0;
  detail.textContent = words(button.node);
});
flame.addEventListener("keydown", (event) => {
  const node = event.target.node;
  if (!node) return;
  const siblings = node.caller ? node.caller.callees : [node];
  const at = siblings.indexOf(node);
  const to = {
    ArrowUp: node.caller, ArrowDown: node.callees[0], ArrowLeft: siblings[at - 1], ArrowRight: siblings[at + 1],
  };
  if (!(event.key in to)) return;
  event.preventDefault();
  const button = to[event.key] && shown(to[event.key]);
  if (button) button.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && search.value) {
    search.value = "";
    look();
  } else if (event.key === "Escape" && zoomed !== root) {
    zoom(zoomed.caller || root, flame.contains(document.activeElement));
  } else if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
});
back.addEventListener("click", () => zoom(root, false));
search.addEventListener("input", look);
for (const button of document.querySelectorAll("button.name")) {
  button.addEventListener("click", () => {
    search.value = button.textContent;
    look();
    flame.scrollIntoView({ block: "nearest" });
  });
}
window.addEventListener("resize", () => draw(null));
draw(null);
