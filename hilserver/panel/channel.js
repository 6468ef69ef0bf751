// Receives the panel's messages: data only, no script that the browser would have to keep.
export default {
  props: { message: String },
  template: "<span></span>",
  watch: {
    message: {
      flush: "post", // the elements that the message refers to are in the page by then
      handler(text) {
        window.panel.update(JSON.parse(text));
        this.$emit("taken");
      },
    },
  },
};
