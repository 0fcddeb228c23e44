// Search runs in a web worker. Chromium refuses workers to pages that are opened from the file
// system, so there a hidden frame takes the worker's place. As with a worker, messages are copied
// and arrive later.
if (location.protocol === "file:") {
  const deliver = (receiver, data) => setTimeout(() => receiver.onmessage?.({ data }));

  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow;
          inside.postMessage = (message) => deliver(this, structuredClone(message));
          const script = inside.document.createElement("script");
          script.onload = () => resolve(inside);
          script.onerror = (event) => this.onerror?.(event);
          script.src = url;
          inside.document.body.append(script);
        };
      });
      document.body.append(this.frame);
    }

    postMessage(message) {
      const copy = structuredClone(message);
      this.ready.then((inside) => deliver(inside, copy));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
