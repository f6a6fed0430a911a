// Search on pages opened from a folder: browsers start no Worker from file://, so that its
// script runs in a hidden frame, with the same messages. Pages of a server keep Worker.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc =
        "<script>self.postMessage = data => parent.dispatchEvent(" +
        "new MessageEvent('message', {data, source: self}))</script>" +
        `<script>importScripts = () => {}</script><script src="${url}"></script>`
      document.body.appendChild(this.frame)
      this.frame.addEventListener("load", () => {
        for (const data of this.waiting.splice(0)) this.send(data)
        this.loaded = true
      })
      addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow) return
        const found = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(found)
        if (this.onmessage) this.onmessage(found)
      })
    }
    postMessage(data) {
      this.loaded ? this.send(data) : this.waiting.push(data)
    }
    send(data) {
      const frame = this.frame.contentWindow
      frame.dispatchEvent(new frame.MessageEvent("message", { data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
