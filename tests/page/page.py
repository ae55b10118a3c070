"""Tests of the live page in a browser. Run by `tests/page/run`, which finds the browser and the server."""

import argparse
import contextlib
import http.client
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from browser import Browser
from server import Server

TIERED = ["-m", "64", "-t", "2", "--tier", "ssd:DIR/tier:256m", "--state", "DIR"]
LOAD = ["--records", "200000", "--connections", "8", "--depth", "8"]
TOKEN = "a token with letters & digits: 0123456789"

# Change without any request, or by that which asks for them.
RESTLESS = re.compile(
    r"uptime|time|rusage_.*|bytes_read|bytes_written|(curr|total)_connections|connection_structures|read_buf_bytes"
    r"|tiers memory_connections|tiers memory_program|tiers tier:\d+:(read_depth|budget_balance_bytes|life_years|background_.*)"
)


def listed(browser):
    """The table of all figures, by name."""
    return dict(browser.run(
        "return [...document.querySelector('#rows').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent))"
    ))  # fmt: skip


def rows(server):
    of_tiers = {f"tiers {name}": value for name, value in server.stats("tiers").items()}
    return {name: value for name, value in {**server.stats(), **of_tiers}.items() if not RESTLESS.fullmatch(name)}


def in_bytes(text):
    """From `1.50 MiB` to a number."""
    number, unit = text.split(" ")
    return float(number) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)


def legend(browser, selector):
    """Names and texts of a legend."""
    return dict(browser.run(
        "return [...document.querySelectorAll(arguments[0] + ' > li')].map((item) => [...item.children].slice(1).map((part) => part.textContent))",
        selector,
    ))  # fmt: skip


def legend_of_facts(browser, selector):
    """Terms and what they are, with the notes."""
    return dict(browser.run(
        "return [...document.querySelectorAll(arguments[0] + ' > div')].map((pair) => [...pair.children].map((part) => part.textContent))",
        selector,
    ))  # fmt: skip


def is_close(text, value):
    # Three digits are told.
    return abs(in_bytes(text) - value) <= 0.006 * value + 1


def figures_at_rest_are_those_of_stats():
    with Server(*TIERED) as server, Browser() as browser:
        browser.open(server.url)
        browser.run("document.querySelector('details').open = true")
        server.fill(*LOAD)
        server.load("mixed", *LOAD, "--requests", "300000").wait()
        # An eighth of them misses.
        server.load("get", "--records", "230000", "--requests", "100000").wait()

        def at_rest():
            before, told = rows(server), listed(browser)
            shown = {name: told.get(name, "").replace("unknown", "unknown") for name in before}
            if shown != before or rows(server) != before:
                return None
            return before

        known = browser.wait("the page and `stats` agree", at_rest)
        assert len(known) > 130, len(known)
        hits, misses = int(known["get_hits"]), int(known["get_misses"])
        assert hits > 0 and misses > 0, (hits, misses)
        share = hits / (hits + misses)
        # Never 100 % while there are misses.
        since = f"{min(99.9, round(share * 1000) / 10):.1f} %"
        assert f"stats reset: {since} of" in browser.text("#hits-note"), (since, browser.text("#hits-note"))
        memory = legend(browser, "#memory-legend")
        for name, row in [("Write buffer", "write_buffer"), ("Read cache", "read_cache"), ("Index of tiers", "tier_index"), ("Free blocks", "free")]:
            assert is_close(memory[name], int(known[f"tiers memory_{row}"])), (name, memory)
        tier = legend(browser, "#tiers section > .legend")
        used = int(known["tiers tier:0:segments_used"]) * int(known["tiers tier:0:segment_bytes"])
        live, capacity = (int(known[f"tiers tier:0:{row}"]) for row in ("live_bytes", "capacity_bytes"))
        assert is_close(tier["Live records"], live), tier
        assert is_close(tier["Dead records and padding"], used - live), tier
        assert is_close(tier["Free"], capacity - used), tier
        # Ten seconds without a request: rates are 0, and a ratio of nothing is none.
        browser.wait("rates of a server at rest", lambda: browser.text("#request-rate") == "0")
        assert browser.text("#hit-ratio") == "–", browser.text("#hit-ratio")
        assert browser.complaints() == []


def figures_move_without_a_reload_under_load():
    with Server(*TIERED) as server, Browser() as browser:
        server.fill(*LOAD)
        browser.open(server.url)
        browser.run("window.wasHere = true")
        server.load("mixed", *LOAD, "--seconds", "60")
        browser.wait_for_figures()
        browser.wait("a rate", lambda: browser.text("#request-rate") not in ("–", "0"))
        seen = set()
        end = time.monotonic() + 6
        while time.monotonic() < end:
            seen.add(browser.text("#requests-chart .legend"))
            time.sleep(0.2)
        assert 3 <= len(seen) <= 9, f"{len(seen)} different texts in 6 s, of one a second"
        assert browser.run("return window.wasHere"), "the page was loaded again"
        paths = browser.run("return [...document.querySelectorAll('#requests-chart path.line')].map((path) => path.getAttribute('d'))")
        assert paths[-1].count("L") >= 5, paths
        everything = browser.run("return document.documentElement.outerHTML")
        assert not re.search(r"NaN|undefined|Infinity|\[object", everything.split("<script>")[0]), "a figure that is none"
        assert browser.text("#state") == "✓ Serving"
        # All that was loaded is the page's own, and there is nothing else to load.
        loaded = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert all(name.startswith(server.url) for name in loaded), loaded
        assert browser.complaints() == []


def a_token_is_asked_for_and_the_session_ends():
    with Server("-m", "64", token=TOKEN) as server, Browser() as browser:
        browser.open(server.url)
        assert browser.text("#gone") is None, "the page itself needs the token"

        def sign_in(token):
            field = browser.find("#token")
            field.clear()
            field.send_keys(token)
            browser.find("form button").click()

        sign_in("not the token at all")
        alert = browser.wait("a word on the wrong token", lambda: browser.text("[role=alert]"))
        assert alert == "That is not the token.", alert
        # The browser's own word on the answer's status.
        complaints = browser.complaints()
        assert all("401" in line for line in complaints), complaints
        sign_in(TOKEN)
        browser.wait_for_figures()
        assert browser.run("return document.cookie") == "", "scripts can't read the session"
        assert TOKEN not in browser.run("return document.documentElement.outerHTML")
        browser.open(server.url)
        browser.wait_for_figures()
        assert browser.complaints() == []

        # A restart ends no session.
        server.stop()
        browser.wait("the end of the server", lambda: "No answer" in (browser.text("#gone") or ""))
        server.start()
        browser.wait("the server again", lambda: not browser.find("#gone").is_displayed())

        # Signed out in another window: this one notices when it has to connect again.
        first = browser.driver.current_window_handle
        browser.driver.switch_to.new_window("tab")
        browser.open(server.url)
        browser.wait_for_figures()
        browser.find("header form button").click()
        browser.wait("the form", lambda: browser.text("#token") is not None)
        browser.driver.switch_to.window(first)
        server.stop()
        server.start()
        browser.wait("a word on the session", lambda: "Sign in" in (browser.text("#gone") or ""))
        browser.find("#gone a").click()
        browser.wait("the form", lambda: browser.text("#token") is not None)


class Proxy(ThreadingHTTPServer):
    """Serves a page in the folder `/cache/`, as a proxy in front of several servers does."""

    daemon_threads = True

    def __init__(self, page_port):
        self.page_port = page_port
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class ProxyHandler(BaseHTTPRequestHandler):
    def forward(self):
        if not self.path.startswith("/cache/"):
            return self.send_error(404)
        page = http.client.HTTPConnection("127.0.0.1", self.server.page_port)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        page.request(self.command, self.path.removeprefix("/cache"), body, dict(self.headers))
        answer = page.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError, http.client.HTTPException):
            while piece := answer.read1():
                self.wfile.write(piece)

    do_GET = do_HEAD = do_POST = forward

    def log_message(self, *_):
        pass


def a_proxy_may_serve_it_in_a_folder():
    with Server("-m", "64", token=TOKEN) as server, Proxy(server.page_port) as proxy, Browser() as browser:
        folder = f"http://127.0.0.1:{proxy.server_port}/cache/"
        browser.open(folder)
        browser.find("#token").send_keys(TOKEN)
        browser.find("form button").click()
        browser.wait_for_figures()
        assert browser.driver.current_url == folder, browser.driver.current_url
        browser.find("header form button").click()
        browser.wait("the form", lambda: browser.text("#token") is not None)
        assert browser.driver.current_url == folder, browser.driver.current_url


def a_server_that_goes_and_comes_back_is_told():
    with Server("-m", "64") as server, Browser() as browser:
        browser.open(server.url)
        browser.wait_for_figures()
        assert not browser.find("#gone").is_displayed()
        line = "return document.querySelector('#requests-chart path.line').getAttribute('d')"
        browser.wait("a line", lambda: "L" in browser.run(line))
        server.stop(signal.SIGKILL)
        text = browser.wait("a word", lambda: browser.find("#gone").is_displayed() and browser.text("#gone"))
        assert re.fullmatch(r"No answer from the server since .*\d:\d\d.*\. Trying again\. \d+ s so far\.", text), text
        assert browser.run("return document.title").startswith("⚠ ")
        assert browser.text("#state") == "✕ No figures", browser.text("#state")
        time.sleep(3)
        assert browser.text("#gone") != text, "how long it has been gone is told anew"
        server.start()
        browser.wait("the server again", lambda: not browser.find("#gone").is_displayed())
        browser.wait("the new one's time", lambda: re.search(r"Up \d s", browser.text("#uptime")))
        assert not browser.run("return document.title").startswith("⚠ ")
        assert browser.text("#state") == "✓ Serving", browser.text("#state")
        browser.wait("a chart with a gap", lambda: browser.run(line).count("M") == 2)
        # The browser's own words on what could not be loaded, and no mistake of the script.
        complaints = browser.complaints()
        assert all("Failed to load resource" in text or "ERR_" in text for text in complaints), complaints
        # One that hangs keeps its connections, and is told of all the same.
        browser.complaints()
        server.child.send_signal(signal.SIGSTOP)
        browser.wait("a word", lambda: browser.find("#gone").is_displayed())
        server.child.send_signal(signal.SIGCONT)
        browser.wait("the server again", lambda: not browser.find("#gone").is_displayed())


def a_drive_that_goes_wrong_is_told():
    with Server(*TIERED) as server, Browser() as browser:
        browser.open(server.url)
        server.fill("--records", "600000")
        browser.wait("records on the tier", lambda: int(server.stats("tiers")["tier:0:records"]) > 300_000)
        assert browser.text("#state") == "✓ Serving" and browser.text(".tier-head .pill") == "✓ Works"
        # Behind the first pages, which are read at a start alone.
        with open(f"{server.dir}/tier", "r+b") as tier:
            tier.seek(8 << 20)
            tier.write(bytes(200 << 20))
        server.load("get", "--records", "600000", "--requests", "20000").wait()
        browser.wait("a word", lambda: browser.text("#state") == "! Tier 0: works, with errors")
        assert browser.text(".tier-head .pill") == "! Works, with errors"
        facts = legend_of_facts(browser, "#tiers dl")
        assert "corrupt pages" in facts["Errors"] and not facts["Errors"].endswith("00 corrupt pages"), facts
        assert browser.complaints() == []


def what_a_tier_is_doing_is_told():
    flags = ["-m", "32", "-t", "2", "--roster", "DIR/roster", "--tier-wait", "1"]
    flags += ["--tier", "ssd:DIR/tier:64m", "--tier", "ssd:DIR/away/tier:64m"]
    with Server(*flags, folders=["away"], token=TOKEN) as server, Browser() as browser:
        # More than one tier has room for.
        server.fill("--records", "40000", "--value-bytes", "4000")
        browser.open(server.url)
        browser.find("#token").send_keys(TOKEN)
        browser.find("form button").click()
        browser.wait_for_figures()

        def change(what):
            page = http.client.HTTPConnection("127.0.0.1", server.page_port)
            page.request("POST", f"/tiers/1/{what}", headers={"Authorization": f"Bearer {TOKEN}"})
            answer = page.getresponse()
            assert answer.status == 200, answer.read()

        def has_told(pattern, above):
            told = re.fullmatch(pattern, browser.text("#tiers section:nth-child(2) .pill"))
            return told is not None and re.fullmatch(above, browser.text("#state")) is not None

        def told(pattern, above="✓ Serving"):
            browser.wait(f"{pattern} and {above}", lambda: has_told(pattern, above))

        told("✓ Works")
        change("drain")
        full = r"raining, \d+\.\d % moved, no room elsewhere"
        told(f"! D{full}", f"! Tier 1: d{full}")
        change("cancel")
        told("✓ Works")
        change("drain?records=drop")
        told("! Drained, can be removed", "! Tier 1: drained, can be removed")
        change("cancel")
        told("✓ Works")
        server.stop()
        os.rename(f"{server.dir}/away", f"{server.dir}/elsewhere")
        server.start()
        told("✕ Absent since the start", "✕ Tier 1: absent since the start")
        change("remove")
        told("– Removed")
        complaints = browser.complaints()
        assert all("Failed to load resource" in text or "ERR_" in text for text in complaints), complaints


def as_many_readers_as_may_be_are_told():
    with Server("-m", "64") as server, Browser() as browser:
        readers = [socket.create_connection(("127.0.0.1", server.page_port)) for _ in range(32)]
        for reader in readers:
            reader.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert reader.recv(12) == b"HTTP/1.1 200"
        browser.open(server.url)
        browser.wait("a word", lambda: "As many pages" in (browser.text("#gone") or ""))
        for reader in readers:
            reader.close()
        browser.wait_for_figures()
        browser.wait("no word", lambda: not browser.find("#gone").is_displayed())


# Elements with text of their own whose text is wider than they are, or that lie outside of the window or across each other.
CROWDED = """
const own = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
const all = [...document.querySelectorAll('body *')].filter((element) => own(element) && element.checkVisibility() && !element.closest('svg, script, style, noscript'));
const boxes = all.map((element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return [element, [...range.getClientRects()]];
});
const found = [];
const width = document.documentElement.clientWidth;
for (const [element, rects] of boxes)
  if (rects.some(({ left, right }) => left < -1 || right > width + 1)) found.push(`outside: ${element.textContent}`);
for (let a = 0; a < boxes.length; a += 1)
  for (let b = a + 1; b < boxes.length; b += 1) {
    if (boxes[a][0].contains(boxes[b][0]) || boxes[b][0].contains(boxes[a][0])) continue;
    for (const one of boxes[a][1]) for (const other of boxes[b][1])
      if (one.left < other.right - 2 && other.left < one.right - 2 && one.top < other.bottom - 4 && other.top < one.bottom - 4)
        found.push(`${boxes[a][0].textContent} over ${boxes[b][0].textContent}`);
  }
return found;
"""

# Texts whose contrast with what lies behind them is too low (WCAG 2, level AA: 4.5), with their contrast.
PALE = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const rgb = parse(getComputedStyle(at).backgroundColor);
    if (rgb.length === 3 || rgb[3] > 0) return rgb;
  }
  return [255, 255, 255];
};
const own = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
return [...document.querySelectorAll('body *')].filter((element) => own(element) && element.checkVisibility() && !element.closest('script, style, noscript')).flatMap((element) => {
  const [one, other] = [parse(getComputedStyle(element).color), behind(element)].map(light);
  const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  return contrast < 4.5 ? [`${contrast.toFixed(2)}: ${element.textContent.slice(0, 40)}`] : [];
});
"""

UNNAMED = """
return [...document.querySelectorAll('[role=img]')].filter((element) => !element.getAttribute('aria-label')).length
  + [...document.querySelectorAll('section')].filter((element) => !document.getElementById(element.getAttribute('aria-labelledby'))).length
  + [...document.querySelectorAll('th')].filter((element) => !element.scope).length;
"""


def it_fits_a_phone_and_a_desktop_in_light_and_dark():
    with Server(*TIERED) as server:
        server.fill(*LOAD)
        server.load("mixed", *LOAD, "--seconds", "40")
        for width, dark in [(375, False), (375, True), (1280, False), (800, True)]:
            with Browser(width=width, height=800, dark=dark) as browser:
                browser.open(server.url)
                browser.wait_for_figures()
                browser.wait("a rate", lambda: browser.text("#request-rate") not in ("–", "0"))
                browser.run("document.querySelector('details').open = true")
                browser.wait("all figures", lambda: len(listed(browser)) > 100)
                where = f"{width} pixels, {'dark' if dark else 'light'}"
                assert browser.run("return document.documentElement.scrollWidth") <= width, where
                for script in (CROWDED, PALE):
                    found = browser.run(script)
                    assert found == [], f"{where}: {found}"
                assert browser.run(UNNAMED) == 0, where
                assert browser.complaints() == [], where


TESTS = [
    figures_at_rest_are_those_of_stats,
    figures_move_without_a_reload_under_load,
    a_token_is_asked_for_and_the_session_ends,
    a_proxy_may_serve_it_in_a_folder,
    a_server_that_goes_and_comes_back_is_told,
    a_drive_that_goes_wrong_is_told,
    what_a_tier_is_doing_is_told,
    as_many_readers_as_may_be_are_told,
    it_fits_a_phone_and_a_desktop_in_light_and_dark,
]


def passes(test):
    begin = time.monotonic()
    try:
        test()
        verdict = "ok"
    except Exception:
        traceback.print_exc()
        verdict = "FAILED"
    print(f"test {test.__name__} ... {verdict} ({time.monotonic() - begin:.0f} s)", flush=True)
    return verdict == "ok"


def screenshot(file, options):
    """The page after some time of load that DRAM alone can't answer."""
    from PIL import Image

    flags = ["-m", "64", "-t", "2", "--tier", "ssd:DIR/tier:256m", "--write-budget", "20MB/s", "--state", "DIR"]
    load = ["--value-bytes", "300", "--connections", "8", "--seconds", str(options.seconds + 30)]
    with Server(*flags) as server, Browser(dark=options.dark, width=options.width) as browser:
        server.fill("--value-bytes", "300", "--records", "800000", "--rate", "60000")
        server.load("mixed", *load, "--records", "800000", "--popularity", "zipf", "--rate", "12000")
        # New records in the place of others.
        server.load("fill", *load, "--first", "800000", "--records", "1000000", "--rate", "3000")
        time.sleep(10)
        browser.open(server.url)
        time.sleep(options.seconds)
        assert browser.complaints() == []
        browser.screenshot(file, "html" if options.whole else "#tiers")
    # A page has few colours.
    Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", metavar="NAME", help=", ".join(test.__name__ for test in TESTS))
    parser.add_argument("--screenshot", metavar="FILE", help="write a picture of the page under load")
    parser.add_argument("--whole", action="store_true", help="with what stands below the tiers")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--seconds", type=int, default=60, help="of load before the picture")
    options = parser.parse_args()
    if options.screenshot:
        return screenshot(options.screenshot, options)
    unknown = set(options.tests) - {test.__name__ for test in TESTS}
    if unknown:
        parser.error(f"no test {', '.join(unknown)}")
    chosen = [test for test in TESTS if not options.tests or test.__name__ in options.tests]
    # Most of their time they wait.
    with ThreadPoolExecutor(2) as threads:
        failed = list(threads.map(passes, chosen)).count(False)
    kind = "FAILED" if failed else "ok"
    print(f"test result: {kind}. {len(chosen) - failed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
