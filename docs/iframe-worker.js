// Search in pages that are opened from a folder: browsers start no worker from file://, so its script runs in a frame.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const script = frame.contentDocument.createElement("script")
      script.src = url
      this.inside = frame.contentWindow
      this.loaded = new Promise((loaded) => script.addEventListener("load", loaded))
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      frame.contentDocument.body.append(script)
    }

    async postMessage(data) {
      await this.loaded
      this.inside.dispatchEvent(new MessageEvent("message", { data }))
    }
  }
}
