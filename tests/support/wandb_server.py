"""A fake W&B server on this machine, which works or has a fault."""

import base64
import gzip
import hashlib
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FAULTS = ("refusing", "hanging", "erring", "dying", "going silent")
SECRETS = {
    "WANDB_API_KEY": "5e5a3e" * 6 + "abcd",
    "HF_TOKEN": "hf_poppyseedpoppyseed",
    "AWS_SECRET_ACCESS_KEY": "wJalrPoppySeedBagel",
    "PASSWORD": "correct-horse-battery",
}
ANSWERED = 2  # requests, which start a run, before a server dies or goes silent


class FakeWandb(ThreadingHTTPServer):
    """Answers the W&B client and keeps what runs send; serves inside a `with` statement.

    fault: one of FAULTS, or "" for a server that works; if "refusing", nothing listens at `url`.
    requests: path and body of each request.
    runs: run id -> {"group", "job_type", "tags", "name", "config", "sweep", "history" (rows),
      "summary", "files" (name -> bytes), "exit"}. As W&B does, it drops a row whose step is not
      larger than the last one's, and tells a run that is resumed how many rows it has.
    artifacts: (name, type) -> {file name: bytes}, of artifacts that were committed.
    """

    def __init__(self, fault: str = ""):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault, self.url = fault, f"http://127.0.0.1:{self.server_port}"
        self.requests: list[str] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self.artifacts: dict[tuple[str, str], dict[str, bytes]] = {}
        self._open: dict[str, dict[str, Any]] = {}  # artifacts that are not committed

    def __enter__(self) -> "FakeWandb":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        if self.fault == "refusing":
            self.__exit__()
        return self

    def __exit__(self, *error) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address) -> None:
        """Prints nothing: a client that gives up is expected."""

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        """Keeps what a request brings, and returns the content of the answer."""
        if path == "/graphql":
            request = json.loads(body)
            operation = re.search(r"(?:query|mutation)\s+(\w+)", request["query"])
            make = getattr(self, f"_{operation[1]}", None) if operation else None
            given = request.get("variables") or {}
            return {"data": make(given.get("input") or given) if make else {}}
        if path.startswith("/put/"):
            _, _, kind, owner, name = path.split("/", 4)
            if kind == "run":
                self._run(owner)["files"][name] = body
            elif kind == "artifact":
                self._open[owner]["files"][name] = body
        elif path.endswith("/file_stream"):
            self._stream(self._run(path.split("/")[-2]), json.loads(body))
        return {}

    def _run(self, name: str) -> dict[str, Any]:
        empty = {"history": [], "summary": {}, "files": {}, "group": None, "tags": [], "config": {}}
        return self.runs.setdefault(name, empty)

    def _stream(self, run: dict[str, Any], body: dict[str, Any]) -> None:
        """Keeps rows of a run's history, its summary and its exit status."""
        for name, part in body.get("files", {}).items():
            if name == "wandb-history.jsonl":
                for row in map(json.loads, part["content"]):
                    if not run["history"] or row["_step"] > run["history"][-1]["_step"]:
                        run["history"].append(row)
            elif name == "wandb-summary.json":
                run["summary"] |= json.loads(part["content"][-1])
        if "exitcode" in body:
            run["exit"] = body["exitcode"]

    def _file(self, kind: str, owner: str, name: str) -> dict[str, Any]:
        """Returns where the client must put a file."""
        url = f"{self.url}/put/{kind}/{owner}/{name}"
        return {"id": name, "name": name, "displayName": name, "uploadUrl": url,
                "uploadHeaders": []}  # fmt: skip

    # Answers to operations of GraphQL, by the operation's name.

    def _Viewer(self, given):
        return {"viewer": {"id": "u", "entity": "me", "username": "me", "email": "", "flags": "{}",
                           "teams": {"edges": []}}}  # fmt: skip

    def _ArtifactType(self, given):
        return {"project": {"artifact": None}}

    def _RunResumeStatus(self, given):
        run = self.runs.get(given["name"])
        if run is None:
            return {"model": {"id": "p", "name": "p", "entity": {"id": "e", "name": "me"},
                              "bucket": None}}  # fmt: skip
        config = {key: {"value": value} for key, value in run["config"].items()}
        bucket = {
            "id": given["name"], "name": given["name"], "displayName": run.get("name"),
            "summaryMetrics": json.dumps(run["summary"]), "config": json.dumps(config),
            "historyLineCount": len(run["history"]), "eventsLineCount": 0, "logLineCount": 0,
            "historyTail": json.dumps([json.dumps(row) for row in run["history"][-1:]]),
            "eventsTail": "[]", "tags": run["tags"], "wandbConfig": '{"t": {}}',
        }  # fmt: skip
        return {"model": {"id": "p", "name": "p", "entity": {"id": "e", "name": "me"},
                          "bucket": bucket}}  # fmt: skip

    def _UpsertBucket(self, given):
        run = self._run(given["name"])
        named = {"groupName": "group", "jobType": "job_type", "tags": "tags", "displayName": "name",
                 "sweep": "sweep"}  # fmt: skip
        run |= {name: given[key] for key, name in named.items() if given.get(key)}
        if given.get("config"):
            run["config"] = {k: v["value"] for k, v in json.loads(given["config"]).items()}
        project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "me"}}
        bucket = {"id": given["name"], "name": given["name"], "displayName": run.get("name") or "r",
                  "description": None, "config": "{}", "sweepName": None, "project": project,
                  "historyLineCount": 0}  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def _CreateRunFiles(self, given):
        files = [self._file("run", given["run"], name) for name in given["files"]]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def _CreateArtifact(self, given):
        made, name = f"a{len(self._open)}", given["artifactCollectionName"]
        self._open[made] = {"name": name, "type": given["artifactTypeName"], "files": {}}
        artifact = {"id": made, "state": "PENDING", "artifactSequence": {"id": made,
                    "latestArtifact": None}}  # fmt: skip
        return {"createArtifact": {"artifact": artifact}}

    def _CreateArtifactManifest(self, given):
        file = self._file("manifest", given["artifactID"], given["name"])
        return {"createArtifactManifest": {"artifactManifest": {"id": file["id"], "file": file}}}

    def _UpdateArtifactManifest(self, given):
        file = self._file("manifest", "updated", given["artifactManifestID"])
        return {"updateArtifactManifest": {"artifactManifest": {"id": file["id"], "file": file}}}

    def _CreateArtifactFiles(self, given):
        edges = []
        for spec in given["artifactFiles"]:
            file = self._file("artifact", spec["artifactID"], spec["name"])
            more = {"storagePath": spec["name"], "uploadMultipartUrls": None,
                    "artifact": {"id": spec["artifactID"]}}  # fmt: skip
            edges.append({"node": file | more})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _ArtifactByID(self, given):
        artifact = self._open[given["id"]]
        project = {"id": "p", "internalId": "p", "name": "p", "entity": {"name": "me"}}
        sequence = {"__typename": "ArtifactSequence", "name": artifact["name"], "project": project}
        return {"artifact": {
            "__typename": "Artifact", "id": given["id"], "artifactSequence": sequence,
            "versionIndex": 0, "artifactType": {"name": artifact["type"]}, "description": None,
            "metadata": None, "ttlDurationSeconds": -1, "ttlIsInherited": True, "tags": [],
            "historyStep": None, "state": "COMMITTED", "size": 0, "digest": "d", "commitHash": None,
            "fileCount": len(artifact["files"]), "createdAt": "2026-01-01T00:00:00",
            "updatedAt": None, "aliases": [],
        }}  # fmt: skip

    def _CommitArtifact(self, given):
        actual = self._open[given["artifactID"]]
        self.artifacts[actual["name"], actual["type"]] = actual["files"]
        return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}


class _Handler(BaseHTTPRequestHandler):
    server: FakeWandb  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.requests.append(f"{self.path} {body.decode(errors='replace')}")
        late = len(self.server.requests) > ANSWERED
        fault = self.server.fault
        if fault == "hanging" or (fault == "going silent" and late):
            time.sleep(3600)
        if fault == "dying" and late:
            self.server.socket.close()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, content = 200, b'{"errors": [{"message": "down"}]}'
        if fault == "erring":
            status = 500
        else:
            content = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", base64.b64encode(hashlib.md5(body).digest()).decode())
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = _do

    def log_message(self, format, *args) -> None:
        """Prints nothing."""


def leaks(folder: Path, requests: list[str]) -> list[str]:
    """Returns where secrets were found: in a folder's files, or in what a server got."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    contents = ((path, path.read_bytes().decode(errors="replace")) for path in files)
    names = [name for name, text in contents if any(s in text for s in SECRETS.values())]
    sent = any(secret in request for request in requests for secret in SECRETS.values())
    return [f"a secret in {name}" for name in names] + (["a secret was sent"] if sent else [])


def environment(workdir: Path, server: FakeWandb) -> dict[str, str]:
    """Returns variables for a run: the secrets, the server, and an empty home."""
    home = Path(f"{workdir}.home")
    home.mkdir(parents=True, exist_ok=True)
    return {**SECRETS, "WANDB_BASE_URL": server.url, "HOME": str(home)}
