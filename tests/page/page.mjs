// Opens pages in a headless Chromium: node page.mjs [--shots DIR] FILE.html...
// Each must load without a request to anywhere and without a word on the console, fit into a phone and a desk, be usable by
// keyboard, and please axe-core, in light and in dark.
import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const args = process.argv.slice(2);
const at = args.indexOf("--shots");
const shots = at < 0 ? null : args.splice(at, 2)[1];
if (shots) mkdirSync(shots, { recursive: true });
if (args.length === 0) throw new Error("no page is given");

const problems = [];
const check = (holds, what) => {
  if (!holds) problems.push(what);
};

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  // Root has no sandbox to give, in containers above all.
  args: ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"],
});

for (const file of args) {
  const url = pathToFileURL(resolve(file)).href;
  for (const scheme of ["light", "dark"]) {
    for (const width of [390, 1280]) {
      const what = `${basename(file)}, ${scheme}, ${width}`;
      const page = await browser.newPage();
      page.on("request", (r) => check(r.url() === url || r.url().startsWith("data:"), `${what}: request of ${r.url()}`));
      page.on("console", (m) => check(false, `${what}: console: ${m.text()}`));
      page.on("pageerror", (e) => check(false, `${what}: ${e.message}`));
      await page.setViewport({ width, height: 900 });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await page.goto(url, { waitUntil: "load" });
      // First as it comes, then with one trampoline open; all of a large page would take axe minutes.
      await page.evaluate(() => {
        const all = [...document.querySelectorAll("details")];
        if (!all.some((d) => d.open) && all.length) all[0].open = true;
      });
      const wide = await page.evaluate(() => {
        const most = document.documentElement.clientWidth;
        const clipped = (e) => e.closest(".scroll, .skip");
        const texts = [...document.querySelectorAll("body *")].filter((e) => !clipped(e));
        const over = texts.filter((e) => e.getBoundingClientRect().right > most + 0.5).map((e) => e.outerHTML.slice(0, 80));
        return { page: document.documentElement.scrollWidth, most, over };
      });
      // Code, matrices and drawings may be wider, and scroll; tables of words and bars may not.
      const scrolls = await page.evaluate(() =>
        [...document.querySelectorAll(".scroll:has(table.plain)")]
          .filter((e) => e.scrollWidth > e.clientWidth)
          .map((e) => `${e.getAttribute("aria-label")}: ${e.scrollWidth} of ${e.clientWidth}`),
      );
      check(scrolls.length === 0, `${what}: a table scrolls: ${scrolls[0]}`);
      check(wide.page <= wide.most, `${what}: the page is ${wide.page} wide, of ${wide.most}`);
      check(wide.over.length === 0, `${what}: wider than the page: ${wide.over[0]}`);
      if (shots) {
        const name = `${basename(file, ".html")}-${scheme}-${width}`;
        await page.screenshot({ path: join(shots, `${name}.png`) });
        const open = await page.$("details[open]");
        if (open) {
          await page.evaluate((e) => e.scrollIntoView(), open);
          await page.screenshot({ path: join(shots, `${name}-open.png`) });
        }
        const both = await page.$("table.both");
        if (both) {
          await page.evaluate((e) => e.scrollIntoView({ block: "start" }), both);
          await page.screenshot({ path: join(shots, `${name}-both.png`) });
        }
        const tracks = await page.$("details[open] .tracks");
        if (tracks) {
          await page.evaluate((e) => e.parentElement && e.scrollIntoView({ block: "start" }), tracks);
          await page.screenshot({ path: join(shots, `${name}-registers.png`) });
        }
      }
      await keyboard(page, what);
      await page.evaluate(axe);
      const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      for (const v of found.violations) {
        check(false, `${what}: ${v.id}: ${v.help}: ${v.nodes.length} places, ${v.nodes[0].html.slice(0, 120)}`);
      }
      await page.close();
    }
  }
}
await browser.close();

// From the top by Tab into the first matrix, through it by arrows, by Enter to the reason behind a cell.
async function keyboard(page, what) {
  if (!(await page.$("table.matrix td a"))) return;
  await page.evaluate(() => window.scrollTo(0, 0));
  const focused = () => page.evaluate(() => ({
    inside: !!document.activeElement.closest("table.matrix td"),
    label: document.activeElement.getAttribute("aria-label"),
    href: document.activeElement.getAttribute("href"),
  }));
  let now = await focused();
  for (let i = 0; i < 400 && !now.inside; i++) {
    await page.keyboard.press("Tab");
    now = await focused();
  }
  check(now.inside, `${what}: Tab does not lead into the matrix`);
  if (!now.inside) return;
  const first = now.label;
  await page.keyboard.press("ArrowRight");
  const right = await focused();
  check(right.inside && right.label !== first, `${what}: the arrow does not lead to the next cell`);
  const told = await page.evaluate(() => document.activeElement.closest("section")?.querySelector(".why")?.textContent);
  check(told === right.label, `${what}: the reason is not shown: ${told}`);
  await page.keyboard.press("ArrowLeft");
  check((await focused()).label === first, `${what}: the arrow does not lead back`);
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  const shown = await page.evaluate(() => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    return target && target.checkVisibility() && target.getBoundingClientRect().height > 0;
  });
  check(shown, `${what}: Enter does not lead to the reason`);
}

for (const problem of problems) console.error(problem);
console.log(`${args.length} pages, ${problems.length} problems`);
process.exitCode = problems.length ? 1 : 0;
