// A page that is opened from the disk may not start a worker: its script runs in a hidden frame.
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inner = this.inner = frame.contentWindow;
    inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = inner.document.createElement("script");
    this.ready = new Promise((done) => { script.onload = done; });
    script.src = url;
    inner.document.body.append(script);
  }
  postMessage(data) {
    this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
  }
};
