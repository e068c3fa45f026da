# Prints and measures text in several scripts.
#> Grüße 你好 🎉 5
text = "Grüße"
print(text, "你好", "🎉", len(text))
