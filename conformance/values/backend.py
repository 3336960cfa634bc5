"""A backend that answers with what it is asked, to the last digit: each request and each publication gets its own payload."""

import http.server
import json
import threading

# An event of a type that begins so has a text as its payload, and is answered with what the text says.
RAW = "raw: "


class Server(http.server.ThreadingHTTPServer):
    # Every client asks at once. With the 5 of Python, a connection waits a second for its next SYN on a busy machine.
    request_queue_size = 128


class Backend:
    def __init__(self):
        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)

    @property
    def options(self):
        return {
            "backend": f"http://127.0.0.1:{self.server.server_address[1]}/",
            "backend_events": ["request", "publish"],
            "backend_answer_bytes_max": 4 * 1024 * 1024,
        }

    def start(self):
        self.thread.start()

    def end(self):
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
        self.server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        payload = member(text, "payload")
        if json.loads(member(text, "type")).startswith(RAW):
            payload = json.loads(payload)
        answer = f'{{"payload":{payload}'
        if member(text, "binary") == "true":
            answer += ',"binary":true'
        body = f"{answer}}}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def member(text, name):
    """The text of a member of an object, as it stands there; `None` if it is missing."""
    decoder, at = json.JSONDecoder(), skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        begin = skip(text, skip(text, at) + 1)
        _, end = decoder.raw_decode(text, begin)
        if key == name:
            return text[begin:end]
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return None


def skip(text, at):
    while text[at] in " \t\r\n":
        at += 1
    return at
