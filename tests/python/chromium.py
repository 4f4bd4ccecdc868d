"""A page in headless Chromium, driven over its debugging pipe: no package besides the browser."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __enter__(self):
        binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert binary, "Chromium is not installed: run tools/setup."
        self.profile = tempfile.mkdtemp(prefix="redline_chromium_")
        to_browser, self.out = os.pipe()
        self.input, from_browser = os.pipe()
        command = (f'exec "{binary}" --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-extensions --remote-debugging-pipe '
                   f'--user-data-dir="{self.profile}" about:blank 3<&{to_browser} 4>&{from_browser}')
        self.process = subprocess.Popen(["bash", "-c", command], pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.events, self.last = b"", [], 0
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.input)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self, deadline):
        while b"\0" not in self.buffer:
            assert select.select([self.input], [], [], max(0, deadline - time.monotonic()))[0], "Chromium does not answer"
            data = os.read(self.input, 1 << 20)
            assert data, "Chromium has ended"
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        deadline = time.monotonic() + 60
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read(deadline))

    def open(self, path, width=1280, height=900, dark=False, phone=False):
        """Loads the file; returns the seconds until it was loaded and painted."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - begin

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self):
        """What the page wrote to the console, and what the browser refused it."""
        seen = [event for event in self.events if event.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")]
        return [event["params"] for event in seen]

    def screenshot(self, path):
        height = min(16000, self.evaluate("document.documentElement.scrollHeight"))
        width = self.evaluate("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))
