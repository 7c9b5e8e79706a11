// A page read from file:// cannot start a worker. There, and there only, a hidden frame takes its place, so that search works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      document.body.append(frame);
      this.frame = frame;
      const inside = frame.contentWindow;
      inside.postToPage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.src = new URL(one, url).href;
        script.onload = done;
        script.onerror = () => failed(new Error(`${one} cannot be loaded`));
        inside.document.body.append(script);
      })), Promise.resolve());
      this.ready = new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        inside.eval("self.postMessage = (data) => postToPage(data)");
        script.src = url;
        script.onload = done;
        script.onerror = () => failed(new Error(`${url} cannot be loaded`));
        inside.document.body.append(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
