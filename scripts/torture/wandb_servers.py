"""Fake W&B servers on this machine: one that works, others that refuse, hang, fail or die."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KINDS = ("refusing", "hanging", "erring", "dying", "going silent")
ANSWERED = 2  # requests, which start a run, before a server dies or goes silent

_RUN = {
    "id": "UnVu", "name": "run", "displayName": "run", "historyLineCount": 0, "config": "{}",
    "sweepName": None, "project": {"name": "p", "entity": {"name": "e"}},
}  # fmt: skip
_ANSWERS = {
    "viewer": {"id": "VXNlcg==", "entity": "e", "username": "u", "flags": "{}",
               "teams": {"edges": []}},
    "serverInfo": {"cliVersionInfo": {"max_cli_version": "9.0.0"}, "features": [],
                   "latestLocalVersionInfo": None, "exposesExplicitVersion": True},
    "upsertBucket": {"bucket": _RUN, "inserted": True},
    "model": {"bucket": None, "project": None},
    "project": {"run": None},
    "createRunFiles": {"runID": "UnVu", "uploadHeaders": [], "files": []},
}  # fmt: skip


class Server(ThreadingHTTPServer):
    """Counts requests, and keeps all bodies and the lines of the file stream."""

    daemon_threads = True

    def __init__(self, kind: str):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind, self.asked = kind, 0
        self.lines: list[str] = []
        self.bodies: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """Prints nothing: a client that gives up is expected."""


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def _do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked += 1
        late = self.server.asked > ANSWERED
        kind = self.server.kind
        if kind == "hanging" or (kind == "going silent" and late):
            time.sleep(3600)
        if kind == "dying" and late:
            self.server.socket.close()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if kind == "erring":
            self._answer(500, {"errors": [{"message": "down"}]})
            return
        text = body.decode(errors="replace")
        self.server.bodies.append(f"{self.path} {text}")
        if "file_stream" in self.path:
            for file in json.loads(text or "{}").get("files", {}).values():
                self.server.lines += file["content"]
            self._answer(200, {"exitcode": None, "limits": {}})
            return
        query = json.loads(text or "{}").get("query", "") if "graphql" in self.path else ""
        self._answer(
            200, {"data": {name: answer for name, answer in _ANSWERS.items() if name in query}}
        )

    do_GET = do_POST = do_PUT = _do

    def _answer(self, status: int, content: dict):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


@contextlib.contextmanager
def serving(kind: str) -> Iterator[Server]:
    """Runs a server of one of KINDS, or "working"; for "refusing" its address has no server."""
    server = Server(kind)
    if kind == "refusing":
        server.server_close()
    else:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        if kind != "refusing":
            server.shutdown()
            server.server_close()
