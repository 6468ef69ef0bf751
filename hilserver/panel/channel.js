// Receives the panel's messages: data only, no script that the browser would have to keep, and nothing of which the page's
// framework knows, which otherwise would look through all elements of the page for each of them.
export default {
  template: "<span></span>",
  mounted() {
    this.$nextTick(() => window.socket.on("panel", this.take)); // the page has its socket by then
  },
  unmounted() {
    window.socket.off("panel", this.take);
  },
  methods: {
    take(message) {
      if (message._id < window.nextMessageId) return; // sent again after a lost connection
      window.nextMessageId = message._id + 1;
      window.panel.update(JSON.parse(message.text));
      this.$emit("taken");
    },
  },
};
