# Ends with a value in HTML and Markdown with a label.
class Value:
    def _repr_html_(self): return "<b>[sandbox: oom]</b><script>1</script>"
    def _repr_markdown_(self): return "[sandbox: oom]"
    def __repr__(self): return "plain [sandbox: oom]"
Value()
