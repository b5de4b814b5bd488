"""A W&B server on loopback: it keeps what runs send, and answers what the client waits for."""

import base64
import gzip
import hashlib
import http.server
import json
import re
import threading
from typing import Any


class FakeWandb:
    """Use as a context manager; `url` is the server, `runs` and `artifacts` what arrived.

    runs: run id -> {"group", "job_type", "tags", "name", "config", "history" (rows), "summary",
      "files" (name -> bytes)}
    artifacts: (name, type) -> {file name: bytes}, those whose commit arrived.
    """

    def __init__(self):
        self.runs: dict[str, dict[str, Any]] = {}
        self.artifacts: dict[tuple[str, str], dict[str, bytes]] = {}
        self.unknown: list[str] = []
        self._open: dict[str, dict[str, Any]] = {}  # artifacts that are not committed
        self._manifests: dict[str, str] = {}  # manifest id -> artifact id
        self._uploads: dict[str, bytes] = {}
        outer = self

        class Handler(_Handler):
            fake = outer

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "FakeWandb":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error) -> None:
        self._server.shutdown()
        self._server.server_close()

    def run(self, name: str) -> dict[str, Any]:
        empty = {"history": [], "summary": {}, "files": {}, "group": None, "tags": [], "config": {}}
        return self.runs.setdefault(name, empty)

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """What a GraphQL operation gets."""
        if make := getattr(self, f"_{operation}", None):
            return make(given.get("input") or given)
        self.unknown.append(operation)
        return {}

    def _Viewer(self, given):
        return {"viewer": {"id": "u", "entity": "me", "username": "me", "email": "", "flags": "{}",
                           "teams": {"edges": []}}}  # fmt: skip

    def _ArtifactType(self, given):
        return {"project": {"artifact": None}}

    def _UpsertBucket(self, given):
        run = self.run(given["name"])
        named = {"groupName": "group", "jobType": "job_type", "tags": "tags", "displayName": "name"}
        run |= {name: given[key] for key, name in named.items() if given.get(key)}
        if given.get("config"):
            run["config"] = {k: v["value"] for k, v in json.loads(given["config"]).items()}
        project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "me"}}
        bucket = {"id": given["name"], "name": given["name"], "displayName": run.get("name") or "r",
                  "description": None, "config": "{}", "sweepName": None, "project": project,
                  "historyLineCount": 0}  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def _CreateRunFiles(self, given):
        files = [{"name": name, "uploadUrl": f"{self.url}/put/run/{given['run']}/{name}"}
                 for name in given["files"]]  # fmt: skip
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def _CreateArtifact(self, given):
        made, name = f"a{len(self._open)}", given["artifactCollectionName"]
        self._open[made] = {"name": name, "type": given["artifactTypeName"], "files": {}}
        artifact = {"id": made, "state": "PENDING", "artifactSequence": {"id": made,
                    "latestArtifact": None}}  # fmt: skip
        return {"createArtifact": {"artifact": artifact}}

    def _CreateArtifactManifest(self, given):
        made = f"m{len(self._manifests)}"
        self._manifests[made] = given["artifactID"]
        file = {"id": made, "name": given["name"], "displayName": given["name"],
                "uploadUrl": f"{self.url}/put/manifest/{made}", "uploadHeaders": []}  # fmt: skip
        return {"createArtifactManifest": {"artifactManifest": {"id": made, "file": file}}}

    def _UpdateArtifactManifest(self, given):
        made = given["artifactManifestID"]
        file = {"id": made, "name": made, "displayName": made,
                "uploadUrl": f"{self.url}/put/manifest/{made}", "uploadHeaders": []}  # fmt: skip
        return {"updateArtifactManifest": {"artifactManifest": {"id": made, "file": file}}}

    def _CreateArtifactFiles(self, given):
        edges = [
            {"node": {"id": spec["name"], "name": spec["name"], "displayName": spec["name"],
                      "uploadUrl": f"{self.url}/put/artifact/{spec['artifactID']}/{spec['name']}",
                      "uploadHeaders": [], "storagePath": spec["name"], "uploadMultipartUrls": None,
                      "artifact": {"id": spec["artifactID"]}}}
            for spec in given["artifactFiles"]
        ]  # fmt: skip
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _CommitArtifact(self, given):
        found = self._open[given["artifactID"]]
        self.artifacts[found["name"], found["type"]] = found["files"]
        return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}

    def put(self, path: str, body: bytes) -> None:
        """A file, at the address that it was given."""
        kind, owner, _, name = re.match(r"/put/(\w+)/([^/]+)(/(.*))?", path).groups()
        if kind == "run":
            self.run(owner)["files"][name] = body
        elif kind == "artifact":
            self._open[owner]["files"][name] = body

    def stream(self, path: str, body: dict[str, Any]) -> None:
        """Rows of a run's history and its summary, by the files they stand in."""
        run = self.run(path.split("/")[-2])
        for name, part in body.get("files", {}).items():
            rows = [
                json.loads(line) for line in part["content"] if name.endswith((".jsonl", ".json"))
            ]
            if name == "wandb-history.jsonl":
                run["history"] += rows
            elif name == "wandb-summary.json":
                run["summary"] |= rows[-1]
        if "exitcode" in body:
            run["exit"] = body["exitcode"]


class _Handler(http.server.BaseHTTPRequestHandler):
    fake: FakeWandb

    def log_message(self, *_) -> None:
        """Nothing on the terminal."""

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _send(self, content: Any, md5: str = "") -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", md5)
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self._body()
        self.fake.put(self.path, body)
        self._send({}, base64.b64encode(hashlib.md5(body).digest()).decode())

    def do_GET(self) -> None:
        self._send({})

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/graphql":
            request = json.loads(body)
            operation = re.search(r"(?:query|mutation)\s+(\w+)", request["query"])
            name = operation[1] if operation else request["query"]
            data = self.fake.answer(name, request.get("variables") or {})
            self._send({"data": data})
        elif self.path.endswith("/file_stream"):
            self.fake.stream(self.path, json.loads(body))
            self._send({})
        else:
            self._send({})
