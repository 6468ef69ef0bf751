// Takes the panel's messages as they come: data only, no script that the browser would have to keep.
export default {
  props: { message: String },
  template: "<span></span>",
  watch: {
    message: {
      flush: "post", // what the message speaks of is in the page by then
      handler(text) {
        window.panel.update(JSON.parse(text));
        this.$emit("taken");
      },
    },
  },
};
